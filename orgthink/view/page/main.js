// Start: the first episode, the episode that the address names, and the server of a live page.

function openEpisode(e) {
  if (data.live) return want(e.id);
  current.episode = e;
  current.agent = e
    ? Math.max(
        0,
        e.agents.findIndex((a) => a.spans.length),
      )
    : 0;
  view.at = Math.max(0, view.rows.indexOf(e));
  hideTip();
  reveal();
  drawEpisode();
  if (e) history.replaceState(null, "", `#${encodeURIComponent(e.id)}`);
}

/** The id in the address; an invalid escape is taken literally. */
function hashId() {
  const wanted = location.hash.slice(1);
  try {
    return decodeURIComponent(wanted);
  } catch {
    return wanted;
  }
}

const openHash = () => data.episodes.find((e) => e.id === hashId());

const SERIAL = 1.1; // agents that decode at once, at most, where they take turns

/** The most instructive episode: right, by several agents that decode at once, on a short critical path. */
function bestEpisode() {
  const right = (e) => (e.grade === null ? 0 : e.grade[0] / e.grade[1]);
  const serial = (e) => Number(e.concurrency <= SERIAL);
  const together = view.rows.filter((e) => e.agents.filter((agent) => agent.spans.length).length > 1);
  return together.sort((a, b) => right(b) - right(a) || serial(a) - serial(b) || a.steps - b.steps)[0] || view.rows[0] || null;
}

drawSummary();
drawList();
if (data.curves && Object.keys(data.curves).length) {
  byId("progress").hidden = false;
  drawCurves(data.curves);
  document.querySelector("main").hidden = !data.episodes.length; // fine-tuning records none
}
addEventListener("hashchange", () => {
  const e = data.live ? { id: hashId() } : openHash();
  if (e && e.id && (!current.episode || e.id !== current.episode.id)) openEpisode(e);
});
if (data.live) {
  byId("whole").hidden = !data.whole;
  if (data.whole) byId("whole").setAttribute("href", data.whole);
  live.wanted = hashId() || null;
  live.key = storedKey();
  if (data.locked && live.key === null) lock("");
  else unlock();
} else openEpisode(openHash() || bestEpisode());
