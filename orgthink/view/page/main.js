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
  const wanted = decodeURIComponent(location.hash.slice(1));
  return data.episodes.find((e) => e.id === wanted);
}

drawSummary();
drawList();
openEpisode(openHash() || view.rows[0] || null);
addEventListener("hashchange", () => {
  const e = openHash();
  if (e && e !== current.episode) openEpisode(e);
});
