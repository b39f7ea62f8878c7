// Rows of the list of episodes. Only those in sight exist.

const ROW = 48; // pixels
const view = { rows: [], at: 0 };

const runs = (e) => e.stop === "running"; // at a server only
const solved = (e) => e.grade !== null && e.grade[0] >= e.grade[1];
const failed = (e) =>
  e.error !== null || e.agents.some((a) => a.error !== null || ["timeout", "error"].includes(a.status));
const troubled = (agent) => !["ok", "running"].includes(agent.status) && agent.cancel !== "parent";

const cutOff = (e) => e.faults.some((fault) => fault.kind === "TRUNCATED");
const malformed = (e) => e.faults.some((fault) => fault.kind !== "TRUNCATED");

function drawRows() {
  const list = byId("list");
  const first = Math.max(0, Math.floor(list.scrollTop / ROW) - 4);
  const last = Math.min(view.rows.length, Math.ceil((list.scrollTop + list.clientHeight) / ROW) + 4);
  byId("rows").replaceChildren(...view.rows.slice(first, last).map((e, i) => listRow(e, first + i)));
}

function listRow(e, index) {
  const chosen = e === current.episode;
  const row = h(
    "div",
    {
      class: "row",
      role: "option",
      id: `row-${index}`,
      "aria-selected": String(chosen),
      onclick: () => openEpisode(e),
    },
    h("span", { class: `grade ${gradeClass(e)}` }, gradeText(e)),
    h(
      "span",
      { class: "name" },
      mark(e.organization),
      e.organization,
      malformed(e) ? h("span", { class: "flag", title: "format error" }, "format") : null,
      cutOff(e) ? h("span", { class: "flag", title: "out of tokens" }, "cut off") : null,
      failed(e) ? h("span", { class: "flag", title: "failed agent" }, "failed") : null,
    ),
    h("span", { class: "steps" }, runs(e) ? `${short(e.sampled)} tokens` : `${short(e.steps)} steps`),
    h("span", { class: "what" }, e.sample ? `${e.problem} · sample ${e.sample}` : e.problem),
  );
  row.style.top = `${index * ROW}px`;
  return row;
}

const gradeText = (e) => (runs(e) ? "…" : e.grade === null ? "–" : `${e.grade[0]}/${e.grade[1]}`);
const gradeClass = (e) => (e.grade === null ? "open" : solved(e) ? "good" : e.grade[0] > 0 ? "part" : "bad");

/** Scroll the chosen row into sight. */
function reveal() {
  const list = byId("list");
  if (view.rows.includes(current.episode)) {
    const top = view.at * ROW;
    if (top < list.scrollTop) list.scrollTop = top;
    if (top + ROW > list.scrollTop + list.clientHeight) list.scrollTop = top + ROW - list.clientHeight;
    list.setAttribute("aria-activedescendant", `row-${view.at}`);
  } else list.removeAttribute("aria-activedescendant");
  drawRows();
}
