// Trials that run now, and a page that is made anew while somebody looks: it reloads itself and stands where it stood.

const LATE = 3; // refreshes without a newer page, after which it is said that none comes
const BUSY = 4000; // milliseconds after a key or a click in which nothing is taken from under anybody's hands

function sparkline(values) {
  const known = values.filter(isNumber), low = Math.min(...known), high = Math.max(...known);
  const x = at => 2 + 76 * at / Math.max(known.length - 1, 1), y = value => 18 - 16 * (high > low ? (value - low) / (high - low) : 0.5);
  const picture = drawn("svg", {viewBox: "0 0 80 20", width: 80, height: 20, class: "spark", role: "img", "aria-label": `from ${short(known[0])} to ${short(known.at(-1))}`});
  picture.append(drawn("path", {d: known.map((value, at) => `${at ? "L" : "M"}${x(at).toFixed(1)} ${y(value).toFixed(1)}`).join("")}), drawn("circle", {cx: x(known.length - 1), cy: y(known.at(-1)), r: 2.2}));
  return picture;
}

function fillRunning() {
  const link = document.querySelector("nav a[href='#running']");
  byId("running").hidden = link.hidden = !data.live.length;
  if (!data.live.length) return;
  byId("running-title").textContent = `Running now: ${plural(data.live.length, "trial")}`;
  const regionOf = row => data.regions[row.region];
  const columns = [
    {title: "region", get: row => regionOf(row).name, node: row => regionLink(regionOf(row).name)}, {title: "trial", get: row => row.trial ?? "final"},
    {title: "epoch", number: true, get: row => row.epochs ? row.epoch : null, show: row => row.epochs ? `${row.epoch} of ${row.epochs}` : ""},
    {title: "done", get: row => row.epochs ? row.epoch / row.epochs : null, node: row => row.epochs ? element("progress", {max: row.epochs, value: row.epoch, ariaLabel: "epochs"}) : element("span", {textContent: row.doing})},
    {title: data.metric, number: true, get: row => row.value, show: row => digits(row.value, 4)}, {title: "curve", get: () => "", node: row => row.curve.some(isNumber) ? sparkline(row.curve) : ""},
    {title: "loss", number: true, get: row => row.loss, show: row => isNumber(row.loss) ? row.loss.toPrecision(4) : ""},
    {title: "left", number: true, get: row => row.left, show: row => lasting(row.left)}, {title: "said", number: true, get: row => row.at, show: row => isNumber(row.at) ? `${lasting(Math.max(0, Math.round(data.made - row.at)))} before` : ""},
  ].filter(column => ["region", "trial", "done"].includes(column.title) || data.live.some(row => column.title === "curve" ? row.curve.length : isNumber(column.get(row))));
  makeTable(byId("lives"), {name: "running", title: "Trials that run now", columns, rows: data.live});
}

// --- where somebody stood ---------------------------------------------------------------------------------

const KEPT = ["find", "status", "metric", "against", "order"]; // fields, by their ids
let touched = 0, paused = false;

function pathOf(node) { // how to find the element with the keyboard's focus again: by id, or as the nth of its kind in one
  if (!node || node === document.body) return null;
  if (node.id) return {id: node.id};
  if (node.classList.contains("cell")) return {region: map.regions[node.dataset.at].slug};
  const home = node.closest("[id]");
  return home ? {id: home.id, kind: node.tagName, at: [...home.getElementsByTagName(node.tagName)].indexOf(node)} : null;
}

function findPath(path) {
  if (!path) return null;
  if (path.region !== undefined) return map.cells[map.regions.findIndex(region => region.slug === path.region)] ?? null;
  return path.kind ? byId(path.id)?.getElementsByTagName(path.kind)[path.at] : byId(path.id);
}

function keepState() {
  const focused = document.activeElement, caret = focused?.type === "search" ? [focused.selectionStart, focused.selectionEnd] : null;
  const state = {scroll: scrollY, region: picked.region?.slug, trial: picked.trial?.trial ?? null, fields: Object.fromEntries(KEPT.map(id => [id, byId(id).value])), wide: byId("wide").checked,
    sort: picked.sort ?? null, inner: picked.overview?.scroll.scrollTop ?? 0, across: picked.overview?.scroll.scrollLeft ?? 0, open: [...document.querySelectorAll("details[open]")].map(one => one.id).filter(Boolean),
    opened: [...opened], focus: pathOf(focused), caret, paused, counts: countsText(), made: data.made};
  history.replaceState({regiondag: state}, "");
}

const keptState = () => { const state = history.state?.regiondag; return state && typeof state === "object" ? state : null; };
const countsText = () => data.headline.counts.filter(([, , count]) => count).map(([, word, count]) => `${count} ${word}`).join(", ");

function takeFields(state) { // before the tables are made
  for (const id of KEPT) if (typeof state.fields?.[id] === "string" && (byId(id).tagName === "INPUT" || [...byId(id).options].some(option => option.value === state.fields[id]))) byId(id).value = state.fields[id];
  byId("wide").checked = Boolean(state.wide);
  picked.sort = state.sort ?? null;
  paused = Boolean(state.paused);
}

function takeScroll(state) { // before anything is painted: a page that jumps is no page to read
  document.body.style.minHeight = `${state.scroll + innerHeight}px`;
  scrollTo({top: state.scroll, behavior: "instant"});
}

function takePlace(state) { // when all is there
  for (const id of state.open ?? []) if (byId(id)) byId(id).open = true;
  if (picked.overview) Object.assign(picked.overview.scroll, {scrollTop: state.inner, scrollLeft: state.across});
  const focused = findPath(state.focus);
  if (focused?.classList.contains("cell")) goToCell(Number(focused.dataset.at), {preventScroll: true});
  else focused?.focus({preventScroll: true});
  if (state.caret && focused?.setSelectionRange) focused.setSelectionRange(...state.caret);
  scrollTo({top: state.scroll, behavior: "instant"});
  document.body.style.minHeight = "";
  if (state.made !== data.made && state.counts !== countsText()) byId("said").textContent = `New figures: ${countsText()}.`;
}

// --- how fresh it is --------------------------------------------------------------------------------------

function sayFresh() {
  const age = Math.max(0, Date.now() / 1000 - data.made), ago = age < 90 ? `${Math.round(age)} s` : age < 5400 ? `${Math.round(age / 60)} min` : age < 172800 ? `${Math.round(age / 3600)} h` : `${Math.round(age / 86400)} days`;
  const every = data.refresh ? `every ${lasting(data.refresh)}` : "";
  byId("state").textContent = data.ended ? "The run has ended." : !data.refresh ? `Still going when this was made, ${ago} ago. regiondag report RUN --watch keeps it fresh.`
    : paused ? `Still going. Made ${ago} ago; not made anew while paused.`
    : age > LATE * data.refresh + 30 ? `No newer page has come for ${ago}: is regiondag report --watch still running?` : `Still going. Made ${ago} ago; looks for newer figures ${every}.`;
  byId("fresh").className = data.ended ? "" : data.refresh && !paused ? "going" : "still";
  byId("pause").hidden = !data.refresh;
  byId("pause").textContent = paused ? "Go on" : "Pause";
}

function watchForNewer() {
  sayFresh();
  if (data.ended && !data.refresh) return;
  setInterval(sayFresh, 1000);
  if (!data.refresh) return;
  byId("pause").onclick = () => { paused = !paused; sayFresh(); };
  for (const kind of ["keydown", "pointerdown", "input", "wheel"]) addEventListener(kind, () => { touched = Date.now(); }, {passive: true, capture: true});
  addEventListener("pagehide", keepState);
  const look = () => {
    const busy = paused || document.hidden || Date.now() - touched < BUSY || !getSelection().isCollapsed || document.activeElement?.tagName === "SELECT";
    if (busy) return setTimeout(look, 500);
    keepState();
    location.reload();
  };
  setTimeout(look, data.refresh * 1000);
}
