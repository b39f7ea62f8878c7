// The contexts of the agents side by side, as the models saw them: prompt, sampled and injected, tags and faults
// marked.

const ORIGINS = { p: "prompt", s: "sampled", i: "injected" };
const TAG = /<\/?[A-Za-z][A-Za-z_]{0,24}(?:-?\d{1,9})?>/g;
const NEAR = 140; // characters to each side in a tooltip

const faultText = (e, fault) =>
  `${fault.kind}${fault.detail ? ` (${fault.detail})` : ""}: ${agentName(e, e.agents[fault.agent])}, after ${short(fault.at)} steps`;

/** The tags of a text; of an injected one those at its ends: what it holds is others' and means nothing. */
const tagsOf = (text, origin) =>
  [...text.matchAll(TAG)].filter(
    (tag) => origin !== "i" || tag.index === 0 || tag.index + tag[0].length === text.length,
  );

/** Text with these tags in <b>, its mathematics typeset or not, and a list of [character, node] put in between. */
function tagged(text, marks, tags, typeset) {
  const pieces = [];
  let done = 0;
  const plain = (end) => {
    if (end > done) {
      const piece = text.slice(done, end);
      pieces.push(typeset ? withMath(piece) : piece);
      done = end;
    }
  };
  const upTo = (limit) => {
    while (marks.length && marks[0][0] <= limit) {
      plain(marks[0][0]);
      pieces.push(marks.shift()[1]);
    }
  };
  for (const match of tags) {
    upTo(match.index);
    plain(match.index);
    pieces.push(h("b", { class: "tag" }, match[0]));
    done = match.index + match[0].length;
  }
  upTo(Infinity);
  plain(text.length);
  return pieces;
}

/** Steps an agent had done before a span. */
function stepsBefore(agent, span) {
  return agent.spans.slice(0, span).reduce((sum, [origin, , tokens]) => sum + (origin === "s" ? tokens : 0), 0);
}

/** Character of a sampled span after so many of the agent's steps, tokens taken as equally long. */
function characterAt(agent, span, step) {
  const [, text, tokens] = agent.spans[span];
  return Math.round((data.texts[text].length * (step - stepsBefore(agent, span))) / Math.max(1, tokens));
}

/** What a tooltip tells about a place: a step of a sampled span, or a whole injected one. */
function around(e, agent, span, step) {
  const [origin, text, tokens, sources] = agent.spans[span];
  const total = agent.spans.reduce((sum, [o, , n]) => sum + (o === "s" ? n : 0), 0);
  const head =
    step === null
      ? `injected · ${short(tokens)} tokens${sources.length ? ` ${fromText(e, sources)}` : ""}`
      : `sampled · about step ${short(step)} of ${short(total)}`;
  const at = step === null ? data.texts[text].length : characterAt(agent, span, step);
  const before = [];
  let room = step === null ? data.texts[text].length + 40 : NEAR;
  for (let i = span; i >= 0 && room > 0 && agent.spans[i][0] !== "p"; i--) {
    const piece = data.texts[agent.spans[i][1]].slice(0, i === span ? at : undefined).slice(-room);
    before.unshift(h("span", { class: ORIGINS[agent.spans[i][0]] }, piece));
    room -= piece.length;
  }
  const after = data.texts[text].slice(at, at + NEAR);
  return [
    h("p", { class: `tip-head ${ORIGINS[origin]}` }, `${agentName(e, agent)} · ${head}`),
    h(
      "pre",
      {},
      before,
      step === null ? null : h("i", { class: "caret" }),
      after && h("span", { class: ORIGINS[origin] }, after),
    ),
  ];
}

function drawText(e) {
  const sight = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach((entry) => fill(e, entry.target)),
    { rootMargin: "200px 400px" },
  );
  const columns = e.agents.map((agent, i) => contextColumn(e, agent, i));
  columns.forEach((column) => sight.observe(column));
  return h(
    "section",
    { id: "context", "aria-label": "Contexts" },
    h("div", { class: "heading" }, h("h3", {}, "Contexts"), mathSwitch(e)),
    h("div", { id: "columns", onkeydown: keepArrows }, columns),
  );
}

/** How mathematics is shown in contexts: as the models saw it, or typeset. Prompts are never typeset. */
function mathSwitch(e) {
  const has = ([origin, text]) => origin !== "p" && data.texts[text].search(DELIMITER) >= 0;
  if (!e.agents.some((agent) => agent.spans.some(has))) return null;
  const radio = (on, text) =>
    h(
      "button",
      {
        role: "radio",
        "aria-checked": String(current.typeset === on),
        "data-typeset": String(on),
        onclick: () => {
          current.typeset = on;
          byId("context").replaceWith(drawText(e));
          revealColumn();
        },
      },
      text,
    );
  return h(
    "div",
    { class: "switch", role: "radiogroup", "aria-label": "Mathematics" },
    radio(false, "as the model saw it"),
    radio(true, "mathematics"),
  );
}

/** Arrows scroll the columns, and do not lead to another episode. */
const keepArrows = (event) => event.key.startsWith("Arrow") && event.stopPropagation();

const toneOf = (agent) => `tone${agent % SHAPES.length}`;

/** An agent's column, whose text is put in when it comes into sight: episodes may have thousands of agents. */
function contextColumn(e, agent, i) {
  const name = agentName(e, agent);
  return h(
    "section",
    {
      class: `column ${toneOf(i)}${agent.spans.length ? "" : " code"}${i === current.agent ? " chosen" : ""}`,
      "data-agent": i,
      "aria-label": `Context of ${name}`,
    },
    h("h4", {}, h("button", { class: "plain", onclick: () => selectAgent(i) }, name)),
    agent.spans.length ? null : h("p", { class: "quiet" }, "No context: this agent is code, not a model."),
  );
}

function fill(e, column) {
  const i = Number(column.dataset.agent);
  const agent = e.agents[i];
  if (!agent.spans.length || column.querySelector(".context")) return;
  const counts = Object.entries(ORIGINS).map(([key, name]) =>
    h(
      "li",
      {},
      h("span", { class: `chip ${name}` }, name),
      ` ${short(agent.spans.reduce((sum, [origin, , tokens]) => sum + (origin === key ? tokens : 0), 0))}`,
    ),
  );
  const faults = e.faults.filter((fault) => fault.agent === i);
  const inherited = agent.inherited ? agent.inherited[0] : 0;
  if (inherited) counts.push(h("li", {}, h("span", { class: "chip reused" }, "reused"), ` ${reuse(agent).reused}`));
  column.append(
    h("ul", { class: "legend", title: "tokens" }, counts),
    h(
      "div",
      { class: "context", tabindex: 0 },
      agent.spans.map((span, k) => contextSpan(e, span, k, faults, k < inherited)),
    ),
  );
  const prompt = column.querySelector(".context > .prompt");
  if (prompt) prompt.scrollTop = prompt.scrollHeight; // its end: what this agent was asked
}

function contextSpan(e, [origin, text, , sources], index, faults, reused) {
  const marks = faults
    .filter((f) => f.span === index)
    .map((f) => [f.character, h("mark", { class: "fault", title: faultText(e, f) }, f.kind)])
    .sort((a, b) => a[0] - b[0]);
  const name = reused ? `${ORIGINS[origin]} reused` : ORIGINS[origin];
  return h(
    "span",
    { class: origin === "i" ? `${name} ${sources.length === 1 ? toneOf(sources[0]) : "several"}` : name, "data-span": index },
    origin === "i" ? senders(e, sources) : null,
    tagged(data.texts[text], marks, tagsOf(data.texts[text], origin), current.typeset && origin !== "p"),
  );
}

const fromText = (e, sources) => `from ${sources.map((i) => agentName(e, e.agents[i])).join(", ")}`;

/** Whose words are injected. The names are no text of the element: what is copied is what the model saw. */
function senders(e, sources) {
  if (!sources.length) return h("i", { class: "from", "data-from": "from the runtime" });
  return sources.map((i) => {
    const from = fromText(e, [i]);
    return h("button", { class: `from ${toneOf(i)}`, "data-from": from, "aria-label": from, onclick: () => selectAgent(i) });
  });
}

const chosenColumn = () => document.querySelector("#columns .column.chosen");

/** Bring the chosen agent's column into sight, sideways only. */
function revealColumn() {
  const column = chosenColumn();
  fill(current.episode, column);
  const strip = byId("columns");
  const [box, own] = [strip.getBoundingClientRect(), column.getBoundingClientRect()];
  if (own.left < box.left) strip.scrollLeft += own.left - box.left;
  else if (own.right > box.right) strip.scrollLeft += Math.min(own.right - box.right, own.left - box.left);
}

/** Scroll the context to a place that was clicked in the lanes. */
function showPlace(agent, span, step) {
  const box = chosenColumn().querySelector(".context");
  const node = box.querySelector(`[data-span="${span}"]`);
  const lines = node.getClientRects();
  const share =
    step === null ? 0 : characterAt(agent, span, step) / Math.max(1, data.texts[agent.spans[span][1]].length);
  const top = lines[0].top + share * (lines[lines.length - 1].bottom - lines[0].top);
  box.scrollTop += top - box.getBoundingClientRect().top - box.clientHeight / 3;
  node.classList.remove("found");
  requestAnimationFrame(() => node.classList.add("found"));
}
