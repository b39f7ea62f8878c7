// Curves of a training: one small chart for each metric, the most important ones first.

const FIRST = [/^reward$/, /^all correct$/, /^right: /, /^critical path steps$/, /^loss$/];

function drawCurves(curves) {
  const entries = Object.entries(curves);
  const constant = ([, points]) => points.length > 1 && points.every(([, value]) => value === points[0][1]);
  const changing = entries.filter((entry) => !constant(entry));
  const first = FIRST.flatMap((wanted) => changing.filter(([name]) => wanted.test(name)));
  const others = changing.filter((entry) => !first.includes(entry));
  byId("charts").replaceChildren(...first.map(curve));
  byId("more-charts").replaceChildren(...others.map(curve));
  byId("more").hidden = !others.length;
  const same = entries.filter(constant).map(([name, points]) => `${name} ${brief(points[0][1])}`);
  byId("constant").textContent = same.length ? `The same at every step: ${same.join(", ")}.` : "";
}

/** A number of any size, with three digits that count. */
function brief(value) {
  const size = Math.abs(value);
  if (Number.isInteger(value) || (size >= 100 && size < 1e7)) return size < 1e7 ? whole.format(value) : value.toExponential(1);
  return size < 0.001 || size >= 1e7 ? value.toExponential(1) : value.toPrecision(3);
}

function curve([name, points]) {
  const [width, height] = [240, 84];
  const [lows, highs] = [0, 1].map((i) => points.map((point) => point[i])).map((v) => [Math.min(...v), Math.max(...v)]);
  const place = (value, [low, high], size) => 4 + ((value - low) / (high - low || 1)) * (size - 8);
  const x = (step) => place(step, lows, width);
  const y = (value) => height - place(value, highs, height);
  const [step, last] = points.at(-1);
  const label = `${name}: ${brief(last)} at step ${step}, between ${brief(highs[0])} and ${brief(highs[1])}`;
  return h(
    "figure",
    {},
    h("figcaption", { title: label }, h("span", {}, name), h("b", {}, brief(last))),
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", role: "img", "aria-label": label },
      s("line", { class: "axis", x1: 0, x2: width, y1: height, y2: height }),
      s("polyline", { points: points.map(([at, value]) => `${x(at)},${y(value)}`).join(" ") }),
      s("circle", { cx: x(step), cy: y(last), r: 2.5 }),
    ),
    h("figcaption", {}, h("span", {}, `${brief(highs[0])} … ${brief(highs[1])}`), h("span", {}, `step ${step}`)),
  );
}

