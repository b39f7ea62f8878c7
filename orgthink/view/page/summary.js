// The header's conditions and the table of organizations.

const data = JSON.parse(byId("data").textContent);
data.organizations = [
  ...new Set([...data.summary.map((row) => row.organization), ...data.episodes.map((e) => e.organization)]),
];

const USED = [
  ["agents", "agents", "an episode", "Agents that had the role."],
  ["calls", "calls", "of the engine", "Times that they asked an engine."],
  ["prompt_tokens", "prompt", "tokens", "Tokens of their prompts, each counted once however often it was sent."],
  ["sampled_tokens", "sampled", "tokens", "Tokens that they decoded."],
  ["injected_tokens", "injected", "tokens", "Tokens that others wrote into their contexts: what a worker or a tool returned."],
  ["critical_steps", "on the critical path", "steps", "Their decoding steps on the critical path."],
  ["seconds", "time", "seconds", "From start to end of each agent, waiting included, added up."],
  ["cost", "cost", "units", "What their replies and calls cost, where that is known of all of them."],
  ["dollars", "dollars", "$", "What they cost by the prices of the run."],
];

/** A heading that explains itself to a mouse; `explained` does so to keys and to fingers. */
const columnHead = (name, unit, meaning) =>
  h("th", { scope: "col", class: "number", title: meaning }, name, h("small", {}, unit));

function interval(values, print, best) {
  if (!values) return h("td", { class: "number" }, "–");
  const [mean, low, high] = values;
  return h(
    "td",
    { class: best ? "number best" : "number" },
    best ? h("span", { class: "star", role: "img", "aria-label": "best" }, "★") : null,
    h("b", {}, print(mean)),
    low === null || high === null ? null : h("small", {}, `${print(low)}–${print(high)}`),
  );
}

/** Prints values of a column. */
const printer = ({ factor, digits: count }) => (value) => digits(count)(factor * value);

const attempts = (row) => (row.ungraded ? `${whole.format(row.n - row.ungraded)} / ${whole.format(row.n)}` : whole.format(row.n));

/** Bodies of the table: one, or one for each part, between its title and its result. */
function summaryRows(cells) {
  const row = (one) => cells(one, data.summary.indexOf(one));
  if (!data.parts.length) return [h("tbody", {}, data.summary.map(row))];
  const wide = (tag, attributes, text) =>
    h("tr", {}, h(tag, { class: "wide", colspan: data.columns.length + 2, ...attributes }, h("div", {}, text)));
  return data.parts.map(({ title, organizations, result }) =>
    h(
      "tbody",
      {},
      wide("th", { scope: "rowgroup" }, title),
      data.summary.filter((one) => organizations.includes(one.organization)).map(row),
      wide("td", {}, result),
    ),
  );
}

function drawSummary() {
  byId("conditions").append(...pairs(Object.entries(data.conditions)));
  byId("introduction").hidden = !(data.introduction || []).length;
  byId("introduction").append(...(data.introduction || []).map((text) => h("p", {}, text)));
  if (!data.summary.length) return;
  byId("overview").hidden = false;
  const within = data.parts.length ? " within its part" : "";
  byId("note").textContent = `Means with 95 % intervals. ★ marks the best mean of a column${within}; intervals may still overlap.`;
  const [n, meaning] = data.summary.some((row) => row.ungraded)
    ? ["graded / n", "Episodes with a grade, and all episodes."]
    : ["n", "Episodes."];
  byId("organizations").append(
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "organization"),
        h("th", { scope: "col", class: "number", title: meaning }, n),
        data.columns.map((column) => columnHead(column.name, column.unit, column.meaning)),
      ),
    ),
    ...summaryRows((row, i) =>
      h(
        "tr",
        {},
        h("th", { scope: "row" }, mark(row.organization), row.organization),
        h("td", { class: "number" }, h("b", {}, row.n === null ? "–" : attempts(row))),
        data.columns.map((column, k) => interval(row.values[k], printer(column), column.best.includes(i))),
      ),
    ),
  );
  const better = { higher: " More is better.", lower: " Less is better." };
  const meanings = data.columns.map((column) => [column.name, column.meaning + (better[column.better] || "")]);
  byId("organizations").parentNode.after(explained("What the columns mean", [[n, meaning], ...meanings]));
  drawUsage();
  drawPlot();
}

function drawUsage() {
  const known = (key) => data.summary.some((row) => Object.values(row.usage).some((used) => (used[key] ?? null) !== null));
  const timed = data.columns.some((column) => column.key === "seconds"); // each episode alone
  const columns = USED.filter(([key]) => (key === "seconds" ? timed : !["cost", "dollars"].includes(key) || known(key)));
  byId("usage").after(
    explained(
      "What the columns mean",
      columns.map(([, name, , meaning]) => [name, meaning]),
    ),
  );
  byId("usage").append(
    h("caption", {}, "Means over the episodes"),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "organization"),
        h("th", { scope: "col" }, "role"),
        columns.map(([, name, unit, meaning]) => columnHead(name, unit, meaning)),
      ),
    ),
    h(
      "tbody",
      {},
      data.summary.flatMap((row) =>
        Object.entries(row.usage).map(([role, used]) =>
          h(
            "tr",
            {},
            h("th", { scope: "row" }, mark(row.organization), row.organization),
            h("td", {}, role),
            columns.map(([key]) => h("td", { class: "number" }, short(used[key]))),
          ),
        ),
      ),
    ),
  );
}
