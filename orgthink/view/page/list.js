// The list of episodes: filter, search, order.

Object.assign(view, { organization: "", result: "", search: "", order: "record" });

const RESULTS = {
  "": ["every result", () => true],
  correct: ["all correct", solved],
  wrong: ["not all correct", (e) => e.grade !== null && !solved(e)],
  ungraded: ["not graded", (e) => e.grade === null],
  format: ["format error", malformed],
  cut: ["cut off", cutOff],
  failed: ["failed agent", failed],
};

const score = (e) => (e.grade === null ? -1 : Math.min(e.grade[0], e.grade[1]) / e.grade[1]);
const ORDERS = {
  record: ["in order of record", null],
  steps: ["longest critical path", (a, b) => b.steps - a.steps],
  short: ["shortest critical path", (a, b) => a.steps - b.steps],
  seconds: ["longest time", (a, b) => b.seconds - a.seconds],
  sampled: ["most sampled tokens", (a, b) => b.sampled - a.sampled],
  worst: ["least correct", (a, b) => score(a) - score(b)],
};

let lowered = null;

/** A test whether an episode contains the text anywhere. */
function containing(text) {
  const wanted = text.toLowerCase();
  if (!wanted) return () => true;
  if (data.live)
    return (e) => [e.id, e.problem, e.organization, e.error || ""].some((part) => part.toLowerCase().includes(wanted));
  lowered ??= data.texts.map((t) => t.toLowerCase());
  const hits = lowered.map((t) => t.includes(wanted));
  return (e) =>
    hits[e.question] ||
    e.id.toLowerCase().includes(wanted) ||
    (e.answer || "").toLowerCase().includes(wanted) ||
    (e.error || "").toLowerCase().includes(wanted) ||
    e.faults.some((f) => f.kind.toLowerCase().includes(wanted)) ||
    e.agents.some((a) => a.spans.some((span) => hits[span[1]]) || (a.error || "").toLowerCase().includes(wanted));
}

/** The rows that the filters let through, in order. */
function pickRows() {
  const contains = containing(view.search);
  const fits = RESULTS[view.result][1];
  view.rows = data.episodes.filter(
    (e) => (!view.organization || e.organization === view.organization) && fits(e) && contains(e),
  );
  const order = ORDERS[view.order][1];
  if (order) view.rows = [...view.rows].sort(order);
  const all = data.episodes.length;
  byId("count").textContent =
    view.rows.length === all
      ? `${whole.format(all)} episodes`
      : `${whole.format(view.rows.length)} of ${whole.format(all)} episodes`;
  view.at = Math.max(0, view.rows.indexOf(current.episode));
  byId("rows").style.height = `${view.rows.length * ROW}px`;
}

function filterRows() {
  pickRows();
  byId("list").scrollTop = 0;
  reveal();
  if (byId("heading")) byId("heading").replaceWith(heading(current.episode));
}

const set = (name) => (value) => {
  view[name] = value;
  filterRows();
};

function organizationChoice() {
  const options = [["", "every organization"], ...data.organizations.map((name) => [name, name])];
  const select = choice("Organization", options, set("organization"), { id: "by-organization" });
  select.value = view.organization;
  return select;
}

function drawList() {
  const label = data.live ? "Search problems" : "Search all text";
  const search = h("input", {
    type: "search",
    id: "search",
    placeholder: label,
    "aria-label": label,
    oninput: () => set("search")(search.value),
  });
  byId("filters").append(
    search,
    organizationChoice(),
    choice(
      "Result",
      Object.entries(RESULTS).map(([key, [text]]) => [key, text]),
      set("result"),
      { id: "by-result" },
    ),
    choice(
      "Order",
      Object.entries(ORDERS).map(([key, [text]]) => [key, text]),
      set("order"),
      { id: "order" },
    ),
    h("p", { id: "count", role: "status" }),
  );
  byId("list").append(h("div", { id: "rows" }));
  byId("list").addEventListener("scroll", drawRows, { passive: true });
  filterRows();
}
