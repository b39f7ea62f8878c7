// Lanes: one for each agent, over decoding steps or seconds.

const LANE = { height: 34, bar: 14, top: 30, right: 18 };

/** Keys that lead from the root to an agent; empty for the root. */
const agentPath = (e, agent) => (agent.parent === null ? "" : agent.id.slice(e.agents[0].id.length + 1));

/** Name of an agent below its root: role and path. */
function agentName(e, agent) {
  const path = agentPath(e, agent);
  return path ? `${agent.role} ${path}` : agent.role;
}

/** Forks between the root and an agent, as far as they can be shown. */
function depth(e, agent) {
  let count = 0;
  for (let at = agent; at.parent !== null && count < 4; at = e.agents[at.parent]) count++;
  return count;
}

/** Pixels of a place; ranges come as [steps, steps, seconds, seconds]. */
function scale(e, axis, width) {
  const offset = axis === "seconds" ? 2 : 0;
  const left = width < 560 ? 132 : 168;
  const end = e.agents.reduce((most, a) => Math.max(most, a.life[offset + 1]), 0) || 1;
  const x = (value) => left + (value / end) * (width - left - LANE.right);
  return { left, end, x, range: (r) => [x(r[offset]), x(r[offset + 1])], at: (place) => x(place[offset / 2]) };
}

function drawLanes(e, axis, width) {
  const to = scale(e, axis, width);
  const height = LANE.top + e.agents.length * LANE.height + 6;
  const y = (agent) => LANE.top + agent * LANE.height + LANE.height / 2;
  const parts = { below: [], bars: [], above: [] };
  e.agents.forEach((agent, i) => drawAgent(e, agent, i, to, y(i), parts));
  e.arrows.forEach((arrow) => drawArrow(e, arrow, axis, to, y, parts));
  for (const [agent, ...range] of e.critical) {
    const [x1, x2] = to.range(range);
    parts.bars.push(bar("critical", x1, x2, y(agent), LANE.bar));
  }
  e.faults.forEach((fault) => drawFault(e, fault, to, y(fault.agent), parts));
  const label = `${e.agents.length} agents over ${axis === "seconds" ? `${short(e.seconds)} seconds` : `${short(e.steps)} decoding steps`}`;
  return s(
    "svg",
    { class: "lanes", width, height, viewBox: `0 0 ${width} ${height}`, role: "group", "aria-label": label },
    s("defs", {}, pattern("hatch", 45), pattern("reuse", -45)),
    e.agents.map((agent, i) => laneHead(e, agent, i, width, y(i), to)),
    laneAxis(to, axis, height),
    parts.below,
    parts.bars,
    parts.above,
  );
}

/** A pattern of slanted lines; its name is also their class. */
const pattern = (id, angle) =>
  s(
    "pattern",
    { id, width: 5, height: 5, patternUnits: "userSpaceOnUse", patternTransform: `rotate(${angle})` },
    s("line", { x1: 0, x2: 0, y1: 0, y2: 5, class: id }),
  );

/** Tokens of its context that an agent inherited, and those that were computed for it. */
function reuse(agent) {
  const read = agent.spans.reduce((sum, [origin, , tokens]) => sum + (origin === "s" ? 0 : tokens), 0);
  const [, reused] = agent.inherited;
  return { reused: short(reused), computed: short(read - reused) };
}

function laneHead(e, agent, i, width, y, to) {
  const chosen = i === current.agent;
  const indent = depth(e, agent) * (width < 560 ? 6 : 12);
  const trouble = troubled(agent) || e.faults.some((f) => f.agent === i);
  const most = Math.floor((to.left - indent - 22) / 6.9); // characters
  const cut = (text) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
  const name = agentName(e, agent);
  const path = name.length > most ? agentPath(e, agent) : ""; // a line of its own, so that the role stays
  return s(
    "g",
    {
      class: chosen ? "lane chosen" : "lane",
      "data-agent": i,
      role: "button",
      tabindex: 0,
      "aria-pressed": String(chosen),
      "aria-label": `${name}: ${agent.status}`,
      onclick: () => selectAgent(i),
      onkeydown: (event) => {
        if (event.key === "Enter" || event.key === " ") {
          event.preventDefault();
          selectAgent(i);
        }
      },
    },
    s("rect", { class: "ground", x: 0, y: y - LANE.height / 2, width, height: LANE.height }),
    trouble && s("circle", { class: "trouble", cx: 5, cy: y, r: 3 }),
    s("title", {}, name),
    s("text", { class: "lane-name", x: 12 + indent, y: path ? y - 2 : y + 4 }, cut(path ? agent.role : name)),
    path && s("text", { class: "lane-key", x: 12 + indent, y: y + 11 }, cut(path)),
  );
}

function laneAxis(to, axis, height) {
  const marks = ticks(to.end, Math.max(3, Math.floor((to.x(to.end) - to.left) / 90)));
  const names = tickLabels(marks);
  return s(
    "g",
    { class: "lane-axis" },
    marks.map((value, i) => [
      s("line", { class: "grid", x1: to.x(value), x2: to.x(value), y1: LANE.top - 6, y2: height }),
      s(
        "text",
        { class: "tick", x: to.x(value), y: 16, "text-anchor": value ? "middle" : "start" },
        value ? names[i] : `0 ${axis}`,
      ),
    ]),
  );
}

function bar(kind, x1, x2, y, height, attributes) {
  return s("rect", {
    class: kind,
    x: x1,
    y: y - height / 2,
    width: Math.max(1, x2 - x1),
    height,
    rx: 2,
    ...attributes,
  });
}

function drawAgent(e, agent, i, to, y, parts) {
  if (agent.inherited) {
    const [, , ...range] = agent.inherited;
    const { reused, computed } = reuse(agent);
    const text = `${agentName(e, agent)} inherits this: ${reused} tokens reused, ${computed} computed`;
    parts.below.push(
      bar("reused", ...to.range(range), y, LANE.bar, {
        fill: "url(#reuse)",
        onclick: () => selectAgent(i),
        onmousemove: (event) => showTip(event, h("p", {}, text)),
        onmouseleave: hideTip,
      }),
    );
  }
  for (const [child, ...range] of agent.waits) {
    const [x1, x2] = to.range(range);
    if (x2 - x1 < 0.5) continue;
    const text = `${agentName(e, agent)} waits for ${agentName(e, e.agents[child])}`;
    parts.bars.push(
      bar("wait", x1, x2, y, 8, {
        fill: "url(#hatch)",
        onclick: () => selectAgent(i),
        onmousemove: (event) => showTip(event, h("p", {}, text)),
        onmouseleave: hideTip,
      }),
    );
  }
  for (const [span, first, last, ...range] of agent.bars) {
    const [x1, x2] = to.range(range);
    const own = (event) => {
      const box = event.currentTarget.getBoundingClientRect();
      return Math.min(
        last,
        Math.max(first + 1, Math.ceil(first + ((event.clientX - box.left) / Math.max(1, box.width)) * (last - first))),
      );
    };
    parts.bars.push(
      bar("bar", x1, x2, y, LANE.bar, {
        "data-agent": i,
        onmousemove: (event) => showTip(event, ...around(e, agent, span, own(event))),
        onmouseleave: hideTip,
        onclick: (event) => {
          const step = own(event);
          selectAgent(i);
          showPlace(agent, span, step);
        },
      }),
    );
  }
  for (const [span, ...place] of agent.injected) {
    const x = to.at(place);
    parts.above.push(
      s(
        "g",
        {
          class: "injected",
          "data-agent": i,
          onmousemove: (event) => showTip(event, ...around(e, agent, span, null)),
          onmouseleave: hideTip,
          onclick: () => {
            selectAgent(i);
            showPlace(agent, span, null);
          },
        },
        s("rect", { class: "reach", x: x - 5, y: y - 13, width: 10, height: 26 }),
        s("rect", { x: x - 1.5, y: y - 11, width: 3, height: 22, rx: 1.5 }),
      ),
    );
  }
}

/** A fork or join, straight down or up at its moment; a thin line shows a child that waits to begin or to be joined. */
function drawArrow(e, [kind, parent, child, key, steps, seconds, hot], axis, to, y, parts) {
  const offset = axis === "seconds" ? 2 : 0;
  const x = to.at([steps, seconds]);
  const own = to.x(e.agents[child].life[offset + (kind === "fork" ? 0 : 1)]);
  const [from, till] = kind === "fork" ? [y(parent), y(child)] : [y(child), y(parent)];
  const down = till > from ? 1 : -1;
  const tip = till - down * (LANE.bar / 2 + 1);
  const text =
    kind === "fork"
      ? `${agentName(e, e.agents[parent])} forks ${key}`
      : `${agentName(e, e.agents[parent])} joins ${key}`;
  if (Math.abs(own - x) > 1) parts.below.push(s("line", { class: "idle", x1: own, x2: x, y1: y(child), y2: y(child) }));
  parts.below.push(s("path", { class: hot ? "arrow hot" : "arrow", d: `M${x},${from}V${tip}` }));
  parts.above.push(
    s("path", {
      class: `head ${kind}${hot ? " hot" : ""}`,
      d: `M${x - 3.5},${tip - down * 6}L${x},${tip}L${x + 3.5},${tip - down * 6}Z`,
      onmousemove: (event) => showTip(event, h("p", {}, text)),
      onmouseleave: hideTip,
    }),
  );
}

function drawFault(e, fault, to, y, parts) {
  const x = to.at(fault.place);
  parts.above.push(
    s(
      "g",
      {
        class: "fault",
        onmousemove: (event) => showTip(event, h("p", {}, faultText(e, fault))),
        onmouseleave: hideTip,
      },
      s("rect", { class: "reach", x: x - 7, y: y - 17, width: 14, height: 16 }),
      s("path", { d: `M${x - 3.5},${y - 14.5}l7,7m0,-7l-7,7` }),
    ),
  );
}
