// The header's conditions and the table of organizations.

const data = JSON.parse(byId("data").textContent);
data.organizations = [
  ...new Set([...data.summary.map((row) => row.organization), ...data.episodes.map((e) => e.organization)]),
];

const COLUMNS = [
  ["all_correct", "all correct", "%", percent],
  ["at_least", "≥ $ correct", "%", percent],
  ["critical_path_steps", "critical path", "steps", digits(1)],
  ["seconds", "time", "seconds", digits(2)],
  ["sampled_tokens", "sampled", "tokens", digits(1)],
  ["concurrency_pool", "concurrency", "agents", digits(2)],
  ["format_error_rate", "format errors", "%", percent],
  ["truncated_rate", "cut off", "%", percent],
];

const USED = [
  ["agents", "agents", "an episode"],
  ["calls", "calls", "of the engine"],
  ["prompt_tokens", "prompt", "tokens"],
  ["sampled_tokens", "sampled", "tokens"],
  ["injected_tokens", "injected", "tokens"],
  ["critical_steps", "on the critical path", "steps"],
  ["seconds", "time", "seconds"],
];

function interval(values, print) {
  if (!values) return h("td", { class: "number" }, "–");
  const [mean, low, high] = values;
  return h(
    "td",
    { class: "number" },
    h("b", {}, print(mean)),
    low === null || high === null ? null : h("small", {}, `${print(low)}–${print(high)}`),
  );
}

function drawSummary() {
  byId("conditions").append(
    ...Object.entries(data.conditions).map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
  if (!data.summary.length) return;
  byId("overview").hidden = false;
  const most = Math.max(0, ...data.summary.map((row) => row.at_least.length));
  const columns = COLUMNS.flatMap(([key, name, unit, print]) =>
    key === "at_least"
      ? Array.from({ length: Math.max(0, most - 1) }, (_, i) => [
          (row) => row.at_least[i],
          name.replace("$", i + 1),
          unit,
          print,
        ])
      : [[(row) => row[key], name, unit, print]],
  );
  byId("organizations").append(
    h("caption", {}, "Means with 95 % intervals"),
    h(
      "thead",
      {},
      h(
        "tr",
        {},
        h("th", { scope: "col" }, "organization"),
        h("th", { scope: "col", class: "number" }, "n"),
        columns.map(([, name, unit]) => h("th", { scope: "col", class: "number" }, name, h("small", {}, unit))),
      ),
    ),
    h(
      "tbody",
      {},
      data.summary.map((row) =>
        h(
          "tr",
          {},
          h("th", { scope: "row" }, mark(row.organization), row.organization),
          h("td", { class: "number" }, h("b", {}, row.n === null ? "–" : whole.format(row.n))),
          columns.map(([value, , , print]) => interval(value(row), print)),
        ),
      ),
    ),
  );
  drawUsage();
  drawPlot();
}

function drawUsage() {
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
        USED.map(([, name, unit]) => h("th", { scope: "col", class: "number" }, name, h("small", {}, unit))),
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
            USED.map(([key]) => h("td", { class: "number" }, short(used[key]))),
          ),
        ),
      ),
    ),
  );
}
