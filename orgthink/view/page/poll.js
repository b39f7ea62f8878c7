// A live page: asks its server for new rows while the page is visible, and for the open episode until it has ended.

const EVERY = 1000; // milliseconds between two requests, at least
const SHARE = 5; // the pause is at least this multiple of the time of the last request
const MOST = 200; // episodes that have ended
const KEY = "orgthink-key"; // in the storage of the session: the browser forgets it with the tab

const live = { server: null, number: 0, running: [], ended: [], wanted: null, drawn: "", key: null, pace: null };

class Locked extends Error {}

// --- the key

function storedKey() {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null; // a browser without storage
  }
}

function storeKey(key) {
  live.key = key;
  try {
    if (key === null) sessionStorage.removeItem(KEY);
    else sessionStorage.setItem(KEY, key);
  } catch {
    // the key lasts until the page is closed
  }
}

/** Ask for the key and hide everything else. */
function lock(message) {
  storeKey(null);
  Object.assign(live, { server: null, number: 0, running: [], ended: [], drawn: "" });
  Object.assign(data, { episodes: [], texts: [] });
  current.episode = null;
  view.rows = [];
  for (const id of ["episode", "rows", "conditions", "totals", "charts", "more-charts", "tip"]) byId(id).replaceChildren();
  hideTip();
  document.querySelector("main").hidden = byId("progress").hidden = byId("forget").hidden = true;
  byId("login").hidden = false;
  byId("login-trouble").textContent = message;
  byId("key").focus();
}

function unlock() {
  byId("login").hidden = true;
  byId("forget").hidden = live.key === null;
  document.querySelector("main").hidden = byId("progress").hidden = false;
  look();
}

byId("login").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = byId("key").value.trim();
  byId("key").value = "";
  if (!/^[\x21-\x7e]+$/.test(key)) return lock("A key has no such characters.");
  storeKey(key);
  unlock();
});
byId("forget").addEventListener("click", () => lock(""));

// --- rows

/** The server's response as text; `null` for status 404. */
async function ask(path) {
  const headers = live.key === null ? {} : { authorization: `Bearer ${live.key}` };
  const response = await fetch(path, { headers, cache: "no-store", credentials: "omit", redirect: "error" });
  if (response.status === 401) throw new Locked();
  if (response.status === 404) return null;
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.text();
}

let looking = 0; // the newest loop: a login starts another

async function look() {
  const mine = ++looking;
  const begun = performance.now();
  let behind = false;
  try {
    const text = await ask(`rows?after=${live.number}`);
    if (mine !== looking) return;
    behind = take(JSON.parse(text));
    await follow();
    setTrouble(live.trouble || "");
  } catch (error) {
    if (mine !== looking) return;
    if (error instanceof Locked) return lock(live.key === null ? "" : "The key is not valid.");
    setTrouble(`The server does not answer (${error.message}). Trying again.`);
  }
  const pause = behind ? 0 : Math.max(EVERY, SHARE * (performance.now() - begun));
  const again = () => mine === looking && look();
  if (document.hidden) document.addEventListener("visibilitychange", again, { once: true });
  else setTimeout(again, pause);
}

function setTrouble(text) {
  byId("trouble").hidden = !text;
  if (byId("trouble").textContent !== text) byId("trouble").textContent = text;
}

/** Take the rows since the last request; whether there are more now. */
function take(now) {
  if (live.server !== null && live.server !== now.server) {
    Object.assign(live, { server: null, number: 0, ended: [], pace: null }); // another run: request all of its rows
    return true;
  }
  Object.assign(live, { server: now.server, number: now.number, running: now.running });
  live.ended = [...now.ended, ...live.ended].slice(0, MOST);
  if (now.facts) drawTotals(now);
  drawListed();
  if (live.wanted === null && view.rows.length) live.wanted = view.rows[0].id;
  if (!data.episodes.length && !current.episode)
    byId("episode").replaceChildren(h("p", { class: "quiet" }, "No episode yet."));
  return Boolean(now.behind);
}

function drawListed() {
  const open = current.episode;
  data.episodes = [...live.running, ...live.ended].map((row) => (open && row.id === open.id ? open : row));
  const names = [...new Set([...data.organizations, ...data.episodes.map((row) => row.organization)])];
  if (names.length > data.organizations.length) {
    data.organizations = names;
    byId("by-organization").replaceWith(organizationChoice());
  }
  pickRows();
  byId("list").setAttribute("aria-activedescendant", `row-${view.at}`);
  drawRows();
}

function drawTotals({ facts, done, total, curves, trouble }) {
  live.trouble = trouble;
  const left = total ? remaining(done, total) : null;
  const all = left === null ? facts : [...facts, ["left, about", duration(left)]];
  byId("totals").replaceChildren(...pairs(all));
  byId("bar").hidden = !total;
  if (total) Object.assign(byId("bar"), { max: total, value: Math.min(done, total) });
  if (curves) drawCurves(curves);
}

/** Seconds until the end by the speed since the page was opened; `null` if unknown. */
function remaining(done, total) {
  const now = performance.now();
  live.pace ??= { done, now };
  if (done >= total || done <= live.pace.done) return null;
  return ((now - live.pace.now) / (done - live.pace.done) / 1000) * (total - done);
}

function duration(seconds) {
  if (seconds < 90) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? `${minutes} min` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// --- the open episode

/** Load the wanted episode, unless it is shown and has ended. */
async function follow() {
  const id = live.wanted;
  if (id === null || (current.episode && current.episode.id === id && !runs(current.episode))) return;
  const text = await ask(`rows/${encodeURIComponent(id)}`);
  if (id !== live.wanted || text === live.drawn) return;
  if (text === null) {
    const begins = live.running.some((row) => row.id === id);
    if (begins || (current.episode && current.episode.id === id)) return;
    current.episode = null;
    const gone = "This episode is not listed any more: orgthink view shows the run folder.";
    byId("episode").replaceChildren(h("p", { class: "quiet" }, gone));
    return drawListed();
  }
  const again = current.episode !== null && current.episode.id === id;
  if (again && (pressed || selecting())) return; // a click must end on the node where it began
  live.drawn = text;
  const found = JSON.parse(text);
  data.texts = found.texts;
  show(found.episode, again);
}

function want(id) {
  live.wanted = id;
  live.drawn = "";
  hideTip();
  follow().then(reveal, (error) => setTrouble(`The episode cannot be loaded (${error.message}).`));
}

/** Draw an episode; `again`: it is already shown, so focus and scrolling are restored. */
function show(e, again) {
  const place = again ? remember() : null;
  current.episode = e;
  if (!again) {
    const first = e.agents.findIndex((agent) => agent.spans.length);
    Object.assign(current, { agent: Math.max(0, first), axis: runs(e) ? "seconds" : "steps" });
    history.replaceState(null, "", `#${encodeURIComponent(e.id)}`);
  }
  hideTip();
  drawListed();
  drawEpisode();
  if (place) restore(place);
}

let pressed = false;
addEventListener("pointerdown", () => (pressed = true));
for (const end of ["pointerup", "pointercancel", "blur"]) addEventListener(end, () => (pressed = false));

/** Whether text of the episode is selected. */
function selecting() {
  const selection = getSelection();
  return !selection.isCollapsed && byId("episode").contains(selection.anchorNode);
}

const ENDS = 4; // pixels from its end within which a box follows its text

/** Selectors of the boxes that scroll. */
function scrolled() {
  const columns = [...document.querySelectorAll("#columns .context")].map((box) => `#columns ${columnOf(box)}`);
  return ["#lanes", "#columns", ".quote", ...columns.flatMap((c) => [`${c} .context`, `${c} .context > .prompt`])];
}

const columnOf = (node) => `.column[data-agent="${node.closest(".column").dataset.agent}"]`;

/** Where the focus is, and how far boxes are scrolled. */
function remember() {
  const boxes = scrolled().flatMap((selector) => {
    const box = document.querySelector(`#episode ${selector}`);
    if (!box) return [];
    const follows = box.scrollTop + box.clientHeight > box.scrollHeight - ENDS;
    return [{ selector, left: box.scrollLeft, top: box.scrollTop, follows }];
  });
  return { boxes, focus: byId("episode").contains(document.activeElement) ? address(document.activeElement) : null };
}

function restore({ boxes, focus }) {
  for (const { selector, left, top, follows } of boxes) {
    const column = document.querySelector(selector.split(" .context")[0]);
    if (column && column.matches(".column")) fill(current.episode, column);
    const box = document.querySelector(`#episode ${selector}`);
    if (!box) continue;
    box.scrollLeft = left;
    box.scrollTop = follows && top > 0 ? box.scrollHeight : top;
  }
  const node = focus && document.querySelector(`#episode ${focus}`);
  if (node) node.focus({ preventScroll: true });
}

/** A selector for what can have the focus. */
function address(node) {
  if (node.dataset.axis) return `[data-axis="${node.dataset.axis}"]`;
  if (node.dataset.typeset) return `[data-typeset="${node.dataset.typeset}"]`;
  if (node.dataset.agent) return `.lane[data-agent="${node.dataset.agent}"]`;
  if (node.closest(".column")) return `${columnOf(node)} ${node.classList.contains("context") ? ".context" : ".plain"}`;
  return node.title ? `[title="${node.title}"]` : null;
}

