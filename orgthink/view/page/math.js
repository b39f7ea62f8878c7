// Mathematics: a subset of LaTeX becomes MathML, which browsers typeset themselves. What is not known stays as it is.

const MATHML = "http://www.w3.org/1998/Math/MathML";
const DELIMITER = /\\\\|\\\$|\$\$|\$|\\[[\]()]|\\boxed(?=\s*\{(?!\s*\}))/g;
const CLOSERS = { $$: "$$", $: "$", "\\[": "\\]", "\\(": "\\)" };
const TOKEN = /\\[A-Za-z]+|\\[^]|\d+(?:\.\d+)?|\s+|[^]/gu;
const LONGEST_TEXT = 200_000; // characters
const LONGEST_FORMULA = 2_000; // characters
const MOST_INSIDE = 60; // delimiters within a formula, such as the ends of a matrix's rows
const DEEPEST = 40;

/** A MathML element. */
const m = (tag, attributes, ...children) => build(document.createElementNS(MATHML, tag), attributes, children);

/** Text and its formulas, in order, as strings and elements. */
function withMath(text) {
  if (text.length > LONGEST_TEXT) return [text];
  const found = [...text.matchAll(DELIMITER)];
  const pieces = [];
  let done = 0;
  found.forEach((delimiter, i) => {
    const formula = delimiter.index >= done ? formulaAt(text, found, i) : null;
    const node = formula && typeset(formula.source, formula.display);
    if (!node) return;
    pieces.push(text.slice(done, delimiter.index), node);
    done = formula.end;
  });
  return [...pieces, text.slice(done)];
}

/** An answer, which may be one formula without signs around it. */
function answerWithMath(text) {
  const pieces = withMath(text);
  const bare = pieces.length === 1 && /\\[a-z]/.test(text) ? typeset(text, false) : null;
  return bare ? [bare] : pieces;
}

/** The formula that a delimiter begins: its source, where it ends, and whether it stands alone; or `null`. */
function formulaAt(text, found, i) {
  const [sign] = found[i];
  const begin = found[i].index;
  if (sign === "\\boxed") {
    const end = endOfGroup(text, text.indexOf("{", begin));
    return end && { source: text.slice(begin, end), end, display: false };
  }
  if (!(sign in CLOSERS)) return null;
  const closer = found.slice(i + 1, i + 1 + MOST_INSIDE).find(([other]) => other === CLOSERS[sign]);
  if (!closer || closer.index - begin > LONGEST_FORMULA) return null;
  const end = closer.index + sign.length;
  const source = text.slice(begin + sign.length, closer.index);
  // "$5 and $6" is money
  if (sign === "$" && (/^\s|\s$|\n/.test(source) || /^[\p{L}\d]/u.test(text.slice(end, end + 2)))) return null;
  return { source, end, display: sign === "$$" || sign === "\\[" };
}

/** Where a group in braces ends; 0 if it does not, or is too long. */
function endOfGroup(text, begin) {
  let open = 0;
  for (let i = begin; i < Math.min(text.length, begin + LONGEST_FORMULA); i++) {
    if (text[i] === "\\") i++;
    else if (text[i] === "{") open++;
    else if (text[i] === "}" && --open === 0) return i + 1;
  }
  return 0;
}

class Unknown extends Error {}

/** A formula as MathML; `null` if anything in it is unknown. */
function typeset(source, display) {
  if (source.length > LONGEST_FORMULA || !source.trim()) return null;
  const attributes = { display: display ? "block" : "inline", alttext: source };
  try {
    return m("math", attributes, new Formula(source.match(TOKEN)).whole());
  } catch (error) {
    if (error instanceof Unknown) return null;
    throw error;
  }
}

/** Reads the tokens of a formula. */
class Formula {
  constructor(tokens) {
    Object.assign(this, { tokens, at: 0, depth: 0 });
  }

  /** The next token that is no space; `undefined` at the end. */
  peek() {
    while (this.at < this.tokens.length && /^\s/.test(this.tokens[this.at])) this.at++;
    return this.tokens[this.at];
  }

  next() {
    const token = this.peek();
    this.at++;
    return token;
  }

  expect(token) {
    if (this.next() !== token) throw new Unknown();
  }

  whole() {
    const row = this.row(() => false);
    if (this.peek() !== undefined) throw new Unknown();
    return row;
  }

  /** Everything up to a token at which `ends` is true, which is left. */
  row(ends) {
    if (++this.depth > DEEPEST) throw new Unknown();
    const parts = [];
    for (let token = this.peek(); token !== undefined && !ends(token); token = this.peek()) parts.push(this.scripted());
    this.depth--;
    return parts.length === 1 ? parts[0] : m("mrow", {}, parts);
  }

  /** An atom with what stands above and below it. */
  scripted() {
    const token = this.peek();
    const base = "^_'".includes(token) ? m("mrow") : this.atom();
    const scripts = {};
    const add = (place, node) => {
      if (scripts[place]) throw new Unknown();
      scripts[place] = node;
    };
    for (let sign = this.peek(); sign && "^_'".includes(sign); sign = this.peek()) {
      if (sign === "'") add("^", this.primes());
      else {
        this.next();
        add(sign, this.argument());
      }
    }
    const { "^": above, _: below } = scripts;
    if (!above && !below) return base;
    const [both, over, under] = LIMITED.has((token || "").slice(1))
      ? ["munderover", "mover", "munder"]
      : ["msubsup", "msup", "msub"];
    if (above && below) return m(both, {}, base, below, above);
    return above ? m(over, {}, base, above) : m(under, {}, base, below);
  }

  primes() {
    let count = 0;
    for (; this.peek() === "'"; count++) this.next();
    return m("mo", {}, "′".repeat(count));
  }

  /** What a command works on: a group, or one atom. */
  argument() {
    if (this.peek() === undefined || "}^_&".includes(this.peek())) throw new Unknown();
    return this.atom();
  }

  group(end = "}") {
    const row = this.row((token) => token === end);
    this.expect(end);
    return row;
  }

  /** A group as text. */
  words() {
    this.expect("{");
    let text = "";
    while (this.at < this.tokens.length && !"{}$\\".includes(this.tokens[this.at][0])) text += this.tokens[this.at++];
    this.expect("}");
    return text;
  }

  atom() {
    const token = this.next();
    if (token[0] === "\\" && token.length > 1) return this.command(token.slice(1));
    if (token === "{") return this.group();
    if (/^\d/.test(token)) return m("mn", {}, token);
    if (/^\p{L}/u.test(token)) return m("mi", {}, token);
    if (token === "~") return m("mspace", { width: "0.25em" });
    if (/^[-+*/=<>()[\]|,.;:!?]$|^[^\x00-\x7f]$/u.test(token)) return m("mo", {}, token === "-" ? "−" : token);
    throw new Unknown();
  }

  command(name) {
    if (LETTERS.has(name)) return m("mi", {}, LETTERS.get(name));
    if (OPERATORS.has(name)) return m("mo", {}, OPERATORS.get(name));
    if (LIMITED.has(name)) return m("mo", { movablelimits: "true" }, LIMITED.get(name));
    if (FUNCTIONS.has(name)) return m("mi", {}, name);
    if (SPACES.has(name)) return m("mspace", { width: SPACES.get(name) });
    if (ACCENTS.has(name)) return this.accented(name);
    if ("{}$%#&_|".includes(name)) return m("mo", {}, name === "|" ? "‖" : name);
    if (/^[Bb]igg?[lrm]?$/.test(name)) return m("mo", {}, this.fence());
    if (/^(displaystyle|textstyle|limits|nolimits)$/.test(name)) return m("mrow");
    if (!Object.hasOwn(RULES, name)) throw new Unknown();
    return RULES[name](this);
  }

  accented(name) {
    const sign = m("mo", { stretchy: String(/^(over|under|wide)/.test(name)) }, ACCENTS.get(name));
    return m(name.startsWith("under") ? "munder" : "mover", {}, this.argument(), sign);
  }

  /** A parenthesis or another delimiter; "" for `.`, an absent delimiter. */
  fence() {
    const token = this.next() || "";
    const text = token[0] === "\\" ? OPERATORS.get(token.slice(1)) || { "{": "{", "}": "}", "|": "‖" }[token[1]] : token;
    if (!text || !/^[()[\]{}|/.<>‖⟨⟩⌊⌋⌈⌉]$/.test(text)) throw new Unknown();
    return text === "." ? "" : text;
  }

  fenced() {
    const left = this.fence();
    const inner = this.row((token) => token === "\\right");
    this.expect("\\right");
    return m("mrow", {}, m("mo", { fence: "true" }, left), inner, m("mo", { fence: "true" }, this.fence()));
  }

  table() {
    const name = this.words();
    if (!TABLES.has(name)) throw new Unknown();
    if (name === "array") this.words();
    const rows = [[]];
    for (let sign = "&"; sign !== "\\end"; ) {
      rows.at(-1).push(this.row((token) => ["&", "\\\\", "\\end"].includes(token)));
      sign = this.next();
      if (sign === undefined) throw new Unknown();
      if (sign === "\\\\") rows.push([]);
    }
    if (this.words() !== name) throw new Unknown();
    const [left, right] = FENCES[name] || ["", ""];
    const cells = rows.map((row) => m("mtr", {}, row.map((cell) => m("mtd", {}, cell))));
    const table = m("mtable", { class: /align|split/.test(name) ? "aligned" : null }, cells);
    return m("mrow", {}, left && m("mo", { fence: "true" }, left), table, right && m("mo", { fence: "true" }, right));
  }
}

const fraction = (formula) => m("mfrac", {}, formula.argument(), formula.argument());
const words = (formula) => m("mtext", {}, formula.words());
const styled = (style) => (formula) => m("mrow", { class: style }, formula.argument());
const parentheses = (...inner) => m("mrow", {}, m("mo", {}, "("), inner, m("mo", {}, ")"));

/** A letter with a double stroke. Those that Unicode had first have places of their own. */
const doubled = (letter) => FIRST_DOUBLED[letter] || String.fromCodePoint(0x1d538 + letter.charCodeAt(0) - 65);
const FIRST_DOUBLED = { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" };

const RULES = {
  ...Object.fromEntries(["frac", "dfrac", "tfrac", "cfrac"].map((name) => [name, fraction])),
  ...Object.fromEntries(["text", "textrm", "textit", "textbf", "mbox", "mathrm", "operatorname"].map((n) => [n, words])),
  ...Object.fromEntries(["mathbf", "boldsymbol", "vb"].map((name) => [name, styled("bold")])),
  ...Object.fromEntries(["mathcal", "mathsf", "mathit"].map((name) => [name, styled(null)])),
  mathbb: (f) => m("mi", {}, f.words().replace(/[A-Z]/g, doubled)),
  boxed: styled("boxed"),
  binom: (f) => parentheses(m("mfrac", { linethickness: "0" }, f.argument(), f.argument())),
  pmod: (f) => parentheses(m("mi", {}, "mod"), m("mspace", { width: "0.3em" }), f.argument()),
  bmod: () => m("mo", { lspace: "0.3em", rspace: "0.3em" }, "mod"),
  mod: () => m("mo", { lspace: "0.3em", rspace: "0.3em" }, "mod"),
  sqrt: (f) => {
    if (f.peek() !== "[") return m("msqrt", {}, f.argument());
    f.next();
    const degree = f.group("]");
    return m("mroot", {}, f.argument(), degree);
  },
  left: (f) => f.fenced(),
  begin: (f) => f.table(),
};
