// Accuracy against latency: one mark for each organization, whiskers for the intervals.

const plotState = { x: "critical_path_steps", y: "all_correct", part: 0 };
const PLOT_X = [
  ["critical_path_steps", "critical path (steps)"],
  ["seconds", "time (seconds)"],
  ["sampled_tokens", "sampled tokens"],
];

const valueOf = (row, key) => row.values[data.columns.findIndex((column) => column.key === key)];
const plotX = (row) => valueOf(row, plotState.x);
const plotY = (row) => valueOf(row, plotState.y);
/** Rows of the chosen part; all without parts. */
const plotRows = () => {
  const part = data.parts[plotState.part];
  return part ? data.summary.filter((row) => part.organizations.includes(row.organization)) : data.summary;
};

function drawPlot() {
  const ys = data.columns.filter((c) => c.unit === "%" && c.better === "higher").map((c) => [c.key, `${c.name} (%)`]);
  const xs = PLOT_X.filter(([key]) => data.columns.some((column) => column.key === key));
  const legend = h("ul", { class: "legend" });
  const redraw = () => {
    byId("chart").replaceChildren(chart());
    legend.replaceChildren(...plotRows().map((row) => h("li", {}, mark(row.organization), row.organization)));
  };
  const titles = data.parts.map((part, i) => [i, part.title]);
  const choosePart = (i) => {
    plotState.part = i;
    redraw();
  };
  byId("plot").append(
    h(
      "figcaption",
      {},
      data.parts.length > 1 ? h("div", {}, choice("Part", titles, choosePart, { id: "plot-part" })) : null,
      choice(
        "Vertical axis",
        ys,
        (value) => {
          plotState.y = value;
          redraw();
        },
        { id: "plot-y" },
      ),
      " against ",
      choice(
        "Horizontal axis",
        xs,
        (value) => {
          plotState.x = value;
          redraw();
        },
        { id: "plot-x" },
      ),
    ),
    h("div", { id: "chart" }),
    legend,
  );
  redraw();
}

function chart() {
  const [width, height, left, bottom, top, right] = [440, 250, 40, 34, 10, 14];
  const rows = plotRows().filter((row) => plotY(row) && plotX(row));
  const far = Math.max(0, ...rows.map((row) => Math.max(...plotX(row).filter((v) => v !== null)))) * 1.08 || 1;
  const x = (value) => left + (value / far) * (width - left - right);
  const y = (value) => height - bottom - value * (height - bottom - top);
  const marks = ticks(far, 5);
  const names = tickLabels(marks);
  const label =
    `${rows.length} organizations: ` +
    rows.map((row) => `${row.organization} ${percent(plotY(row)[0])} % at ${short(plotX(row)[0])}`).join(", ");
  return s(
    "svg",
    { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    [0, 0.25, 0.5, 0.75, 1].map((value) => [
      s("line", { class: value ? "grid" : "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      s("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, String(100 * value)),
    ]),
    marks.map((value, i) => [
      s("line", { class: "axis", x1: x(value), x2: x(value), y1: y(0), y2: y(0) + 4 }),
      s("text", { class: "tick", x: x(value), y: y(0) + 18, "text-anchor": "middle" }, names[i]),
    ]),
    rows.map((row) => plotMark(row, x, y)),
  );
}

function plotMark(row, x, y) {
  const { shape, look } = markOf(row.organization);
  const [mx, lx, hx] = plotX(row);
  const [my, ly, hy] = plotY(row);
  const clear = (low, high) => low !== null && high !== null;
  const text = `${row.organization}: ${percent(my)} % [${percent(ly)}, ${percent(hy)}], ${short(mx)} [${short(lx)}, ${short(hx)}]`;
  return s(
    "g",
    {
      class: `point ${look}`,
      role: "img",
      tabindex: 0,
      "aria-label": text,
      onmousemove: (event) => showTip(event, h("p", {}, text)),
      onmouseleave: hideTip,
    },
    clear(lx, hx) && s("line", { class: "whisker", x1: x(lx), x2: x(hx), y1: y(my), y2: y(my) }),
    clear(ly, hy) && s("line", { class: "whisker", x1: x(mx), x2: x(mx), y1: y(ly), y2: y(hy) }),
    s("path", { d: shape, transform: `translate(${x(mx)},${y(my)})` }),
  );
}
