"use strict";
// Small helpers. Text from the record only ever becomes a text node or an attribute, never markup.

const SVG = "http://www.w3.org/2000/svg";

function build(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) // one by one: a call takes only so many arguments
    if (child !== null && child !== undefined && child !== "") node.append(child);
  return node;
}

/** An HTML element. */
const h = (tag, attributes, ...children) => build(document.createElement(tag), attributes, children);

/** An SVG element. */
const s = (tag, attributes, ...children) => build(document.createElementNS(SVG, tag), attributes, children);

const byId = (id) => document.getElementById(id);

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A number with about three digits that count. */
function short(value) {
  if (value === null || value === undefined) return "–";
  const size = Math.abs(value);
  if (size >= 100 || Number.isInteger(value)) return whole.format(value);
  return value.toFixed(size >= 10 ? 1 : 2);
}

/** Prints numbers of one column, so that their decimal points align. */
const digits = (count) => {
  const format = new Intl.NumberFormat("en", { minimumFractionDigits: count, maximumFractionDigits: count });
  return (value) => (value === null || value === undefined ? "–" : format.format(value));
};

const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(1));

/** Round values that cut 0…high into about `count` parts. */
function ticks(high, count) {
  if (!(high > 0)) return [0];
  const raw = high / count;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((m) => m * power).find((m) => m >= raw * 0.999);
  return Array.from({ length: Math.floor(high / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}

/** Tick labels with the same number of decimals. */
const tickLabels = (values) => {
  const places = values.map((value) => (String(value).split(".")[1] || "").length);
  return values.map(digits(Math.max(...places)));
};

/** A labelled choice; `change` gets the value. */
function choice(label, options, change, attributes) {
  const select = h(
    "select",
    { "aria-label": label, ...attributes, onchange: () => change(select.value) },
    options.map(([value, text]) => h("option", { value }, text)),
  );
  return select;
}

/** Names and values of a definition list. */
const pairs = (found) => found.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)));

/** A list of definitions that can be opened. */
const explained = (title, found) =>
  h("details", { class: "meanings" }, h("summary", {}, title), h("dl", {}, pairs(found)));

// --- marks: one colour and one shape for each organization, wherever it appears. They are hollow, so that those of
// equal values are seen; the second half of many organizations is solid.

const SHAPES = [
  "M0,-5.5A5.5,5.5 0 1 1 -0.01,-5.5Z",
  "M-5,-5H5V5H-5Z",
  "M0,-6.5L6.5,0L0,6.5L-6.5,0Z",
  "M0,-6L6,5H-6Z",
  "M0,6L6,-5H-6Z",
  "M-2,-6H2V-2H6V2H2V6H-2V2H-6V-2H-2Z",
];

const markOf = (organization) => {
  const i = Math.max(0, data.organizations.indexOf(organization));
  const tone = `tone${i % SHAPES.length}`;
  return { shape: SHAPES[i % SHAPES.length], look: i < SHAPES.length ? tone : `${tone} solid` };
};

function mark(organization) {
  const { shape, look } = markOf(organization);
  return s(
    "svg",
    { class: `mark ${look}`, viewBox: "-8 -8 16 16", "aria-hidden": "true" },
    s("path", { d: shape }),
  );
}

// --- tooltip

function showTip(event, ...children) {
  const tip = byId("tip");
  tip.replaceChildren(...children);
  tip.hidden = false;
  const gap = 14;
  const { width, height } = tip.getBoundingClientRect();
  const right = event.clientX + gap + width > innerWidth - 8;
  const below = event.clientY + gap + height > innerHeight - 8;
  tip.style.left = `${Math.max(8, right ? event.clientX - gap - width : event.clientX + gap)}px`;
  tip.style.top = `${Math.max(8, below ? event.clientY - gap - height : event.clientY + gap)}px`;
}

const hideTip = () => {
  byId("tip").hidden = true;
};
