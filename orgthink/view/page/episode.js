// One episode: what was asked and answered, its numbers, the lanes, its agents, and one agent's context.

const current = { episode: null, agent: 0, axis: "steps", typeset: false };

const AGENT_COLUMNS = [
  ["agent", "Role of the agent, and the keys of the forks that lead to it."],
  ["stopped", "Why it ended, and the agent that ended it."],
  ["status", "What its parent got."],
  ["prompt", "Tokens of its prompt."],
  ["sampled", "Tokens that it decoded: its steps."],
  ["injected", "Tokens that others wrote into its context."],
  ["reused", "Tokens of its prompt and of what was injected that it inherits: a prefix cache holds them. Others are computed."],
  ["begin, s", "Seconds from the start of the episode to its own."],
  ["seconds", "From its start to its end, waiting included."],
  ["model", "Model that decoded it; code has none."],
];

const PATTERNS = { wait: "hatch", reused: "reuse" };

function drawEpisode() {
  const e = current.episode;
  const page = byId("episode");
  if (!e) return page.replaceChildren(h("p", { class: "quiet" }, "No episode."));
  const open = page.querySelector(".meanings")?.open;
  page.replaceChildren(
    heading(e),
    facts(e),
    h(
      "div",
      { class: "pair" },
      h("section", {}, h("h3", {}, "Problem"), h("pre", { class: "quote" }, withMath(data.texts[e.question]))),
      h(
        "section",
        {},
        h("h3", {}, "Answer"),
        e.answer === null
          ? h("p", { class: "quiet" }, runs(e) ? "not yet" : "none")
          : h("pre", { class: "quote", id: "answer" }, answerWithMath(e.answer.trim())),
      ),
    ),
    timelineSection(),
    agentTable(e),
    explained("What the columns mean", AGENT_COLUMNS),
    drawText(e),
  );
  page.querySelector(".meanings").open = Boolean(open);
  layLanes();
  revealColumn();
}

function heading(e) {
  const at = view.rows.indexOf(e);
  const go = (by, text, label) =>
    h("button", { "aria-label": label, title: label, disabled: !view.rows[at + by], onclick: () => move(by) }, text);
  return h(
    "div",
    { class: "heading", id: "heading" },
    h(
      "h2",
      {},
      mark(e.organization),
      `${e.organization} `,
      h("span", { class: "quiet" }, e.sample ? `${e.problem} · sample ${e.sample}` : e.problem),
    ),
    h(
      "div",
      { class: "buttons" },
      h("span", { class: "quiet" }, at < 0 ? "filtered out" : `${short(at + 1)} of ${short(view.rows.length)}`),
      go(-1, "←", "Previous episode (left arrow)"),
      go(1, "→", "Next episode (right arrow)"),
    ),
  );
}

function facts(e) {
  const grade = e.grade === null ? "not graded" : `${e.grade[0]} of ${e.grade[1]} correct`;
  const list = [
    ["grade", h("span", { class: `grade ${gradeClass(e)}` }, grade)],
    ["critical path", `${short(e.steps)} steps`],
    ["sampled", `${short(e.sampled)} tokens`],
    ["concurrency", digits(2)(e.concurrency)],
    ["time", `${short(e.seconds)} s`],
    ["agents", `${e.agents.length}, pool of ${e.capacity}`],
    ["stopped", e.cancel ? `${e.stop}, by ${e.cancel}` : e.stop],
  ];
  return h(
    "div",
    {},
    h("dl", { class: "facts" }, pairs(list)),
    e.error && h("p", { class: "alarm" }, e.error),
    e.faults.map((fault) => h("p", { class: "alarm" }, faultText(e, fault))),
  );
}

function timelineSection() {
  const e = current.episode;
  const radio = (axis) =>
    h(
      "button",
      {
        role: "radio",
        "aria-checked": String(current.axis === axis),
        "data-axis": axis,
        disabled: axis === "seconds" && !(e.seconds > 0),
        onclick: () => {
          current.axis = axis;
          drawEpisode();
        },
      },
      axis,
    );
  const key = (kind, text) =>
    h(
      "li",
      {},
      s(
        "svg",
        { class: "key", viewBox: "0 0 18 12", "aria-hidden": "true" },
        kind === "injected"
          ? s("g", { class: "injected" }, s("rect", { x: 7.5, y: 0, width: 3, height: 12, rx: 1.5 }))
          : bar(kind, 0, 18, 6, kind === "wait" ? 8 : 10, PATTERNS[kind] && { fill: `url(#${PATTERNS[kind]})` }),
      ),
      text,
    );
  return h(
    "section",
    { "aria-label": "Timeline" },
    h(
      "div",
      { class: "heading" },
      h("h3", {}, "Timeline"),
      h(
        "ul",
        { class: "legend" },
        key("bar", "decoding"),
        key("critical", "critical path"),
        key("wait", "waiting at a join"),
        key("injected", "injected"),
        e.agents.some((agent) => agent.inherited) ? key("reused", "inherited context, reused") : null,
      ),
      h("div", { class: "switch", role: "radiogroup", "aria-label": "Axis" }, radio("steps"), radio("seconds")),
    ),
    h("div", { id: "lanes" }),
  );
}

let laid = 0; // width for which the lanes were drawn

function layLanes() {
  const box = byId("lanes");
  if (!box) return;
  laid = box.clientWidth;
  const axis = current.axis === "seconds" && current.episode.seconds > 0 ? "seconds" : "steps";
  box.replaceChildren(drawLanes(current.episode, axis, Math.max(320, laid)));
}

function agentTable(e) {
  const count = (agent, origin) => short(agent.spans.reduce((sum, [o, , n]) => sum + (o === origin ? n : 0), 0));
  const number = (text) => h("td", { class: "number" }, text);
  return h(
    "div",
    { class: "scroll" },
    h(
      "table",
      { class: "agents" },
      h(
        "thead",
        {},
        h(
          "tr",
          {},
          AGENT_COLUMNS.map(([name, meaning], i) =>
            h("th", { scope: "col", class: i > 2 && i < 9 ? "number" : null, title: meaning }, name),
          ),
        ),
      ),
      h(
        "tbody",
        {},
        e.agents.map((agent, i) =>
          h(
            "tr",
            { class: i === current.agent ? "chosen" : null, "data-agent": i, onclick: () => selectAgent(i) },
            h("th", { scope: "row" }, agentName(e, agent)),
            h("td", {}, agent.cancel ? `${agent.stop}, by ${agent.cancel}` : agent.stop),
            h(
              "td",
              {},
              h("span", { class: troubled(agent) ? "bad" : null }, agent.status.replace("_", " ")),
              agent.error && h("small", {}, agent.error),
            ),
            ["p", "s", "i"].map((origin) => number(count(agent, origin))),
            number(agent.inherited ? [reuse(agent).reused, h("small", {}, `${reuse(agent).computed} computed`)] : "–"),
            number(agent.life[2].toFixed(2)),
            number((agent.life[3] - agent.life[2]).toFixed(2)),
            h("td", {}, agent.model || "code"),
          ),
        ),
      ),
    ),
  );
}

function selectAgent(i) {
  current.agent = i;
  for (const node of document.querySelectorAll("#episode tr[data-agent]"))
    node.classList.toggle("chosen", Number(node.dataset.agent) === i);
  for (const node of document.querySelectorAll("#lanes .lane")) {
    node.classList.toggle("chosen", Number(node.dataset.agent) === i);
    node.setAttribute("aria-pressed", String(Number(node.dataset.agent) === i));
  }
  for (const node of document.querySelectorAll("#columns .column"))
    node.classList.toggle("chosen", Number(node.dataset.agent) === i);
  revealColumn();
}

function move(by) {
  const next = view.rows[view.rows.indexOf(current.episode) + by];
  if (next) openEpisode(next);
}
