// Start, keys and resizing.

const STEPS = { ArrowLeft: -1, ArrowRight: 1 };

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const inList = event.target.closest("#list");
  const by = STEPS[event.key] || (inList && { ArrowUp: -1, ArrowDown: 1 }[event.key]);
  if (!by) return;
  event.preventDefault();
  move(by);
});

let laid = 0;
new ResizeObserver(() => {
  const width = byId("lanes") ? byId("lanes").clientWidth : 0;
  if (width && width !== laid) {
    laid = width;
    layLanes();
  }
  drawRows();
}).observe(byId("episode"));

function openHash() {
  let wanted = location.hash.slice(1);
  try {
    wanted = decodeURIComponent(wanted);
  } catch {
    // a stray % is no escape: nothing has that id
  }
  return data.episodes.find((e) => e.id === wanted);
}

/** The episode that shows most: right, by several agents, on a short critical path. */
function bestEpisode() {
  const score = (e) => (e.grade === null ? 0 : e.grade[0] / e.grade[1]);
  const together = view.rows.filter((e) => e.agents.filter((agent) => agent.spans.length).length > 1);
  return together.sort((a, b) => score(b) - score(a) || a.steps - b.steps)[0] || view.rows[0] || null;
}

drawSummary();
drawList();
openEpisode(openHash() || bestEpisode());
addEventListener("hashchange", () => {
  const e = openHash();
  if (e && e !== current.episode) openEpisode(e);
});
