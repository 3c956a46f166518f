// The page as a whole: reads the figures, fills the sections, keeps what is picked, and redraws for paper and for dark screens.

let data, details = null; // what is shown at once, and what is unpacked when a detail comes into sight
let unpacking = null;
const picked = {region: null, rows: [], trial: null};
const opened = new Set(); // sections whose details are shown
const redraws = []; // every picture of the library

const nextTask = () => new Promise(done => setTimeout(done));
const difference = (one, other) => isNumber(one) && isNumber(other) ? one - other : null;
const nodeName = trial => trial === null ? "final training" : trial < 0 ? "region" : `trial ${trial}`;

function tell(text) {
  byId("message").textContent = text;
}

// --- all regions ------------------------------------------------------------------------------------------

function interval(region, metric) {
  const [low, high] = region.intervals[metric] ?? [null, null];
  return isNumber(low) && isNumber(high) ? region.program ? `${low.toFixed(4)} to ${high.toFixed(4)}` : `${Math.max(low, 0).toFixed(4)} to ${Math.min(high, 1).toFixed(4)}` : "";
}

function overviewColumns(metric) {
  const figure = (title, of, show = value => digits(value, 4), more = false) => ({title, number: true, more, get: region => of(region) ?? null, show: region => show(of(region) ?? null)});
  const own = (title, of, show) => figure(title, region => region.searched_by ? null : of(region), value => value === null ? "-" : show(value), true);
  const gain = (title, against, more) => [
    {...figure(title, region => gainOf(region, against)?.value, value => signed(value)), more},
    {title: `95 % of it`, number: true, more, by: region => gainOf(region, against)?.low ?? null, get: region => ends(gainOf(region, against))},
  ];
  const known = metric === data.metric ? ["floor", "simple", "incumbent"].filter(against => data.regions.some(region => region.gains[against])) : [];
  const words = {floor: `over ${AGAINST.floor}`, simple: "over best simple", incumbent: "over what served before"};
  return [
    {title: "region", get: region => region.name, node: region => regionLink(region.name, region)},
    {title: "outcome", get: outcome}, {title: "status", more: true, get: region => region.status},
    figure(`${asked()}s`, region => region.customers || (region.serves && !region.program && !Object.keys(region.test).length ? 0 : null), value => value?.toLocaleString("en") ?? ""), figure(`test ${metric}`, region => region.test[metric]),
    {title: "95 %", number: true, screen: known.length > 2, by: region => region.intervals[metric]?.[0] ?? null, get: region => interval(region, metric)},
    ...known.flatMap((against, at) => gain(words[against], against, at > 0 && against !== "incumbent")),
    figure(AGAINST.floor, region => region.floor[metric], undefined, true), figure("best simple", region => region.simple[metric], undefined, true), figure("bestsellers", region => region.bestsellers[metric], undefined, true),
    {title: "served by", long: true, get: region => region.serves}, {title: "reason", long: true, more: true, get: region => region.reason},
    ...["run", "failed", "pruned"].map(count => own(count === "run" ? "trials run" : count, region => region.counts[count], short)),
    own("hours", region => region.hours, value => digits(value, 3)),
    ...(data.currency ? [figure(`cost (${data.currency})`, region => region.cost, value => value === null ? "unknown" : digits(value, 2))] : []),
  ];
}

function fillOverview() {
  const visible = () => {
    const wanted = byId("find").value.toLowerCase(), kind = byId("status").value;
    const all = region => [region.name, region.slug, region.reason, region.serves].join("\n").toLowerCase();
    return data.regions.filter(region => (!kind || region.verdict === kind) && all(region).includes(wanted));
  };
  const make = () => {
    picked.overview = makeTable(byId("overview"), {name: "regions", title: "All regions", columns: overviewColumns(byId("metric").value), rows: visible(), picked: region => region === picked.region,
      sort: picked.sort, wide: byId("wide").checked, onSort: sort => { picked.sort = sort; }});
  };
  byId("find").oninput = byId("status").onchange = () => picked.overview.show(visible());
  byId("wide").onchange = event => picked.overview.widen(event.target.checked);
  byId("metric").onchange = make;
  make();
}

function fillChoices() {
  const metrics = [...new Set([data.metric, ...data.regions.map(region => region.metric), ...data.regions.flatMap(region => Object.keys(region.test))])];
  byId("metric").replaceChildren(...metrics.map(metric => new Option(metric, metric)));
  for (const kind of Object.keys(VERDICTS)) {
    const region = data.regions.find(one => one.verdict === kind);
    if (region) byId("status").add(new Option(outcome(region), kind));
  }
}

// --- timeline and failures --------------------------------------------------------------------------------

function stretch(index) {
  const time = details.timeline, region = data.regions[time.region[index]];
  const facts = [region ? `${region.name}, ${nodeName(time.trial[index])}` : "", lasting(time.seconds[index]), `from ${moment(time.start + time.from[index])}`, details.texts[time.ending[index]], details.texts[time.reason[index]]];
  return facts.filter(Boolean).join(", ");
}

function stretches() {
  const time = details.timeline;
  return [["slot", "phase", "region", "trial", "start", "seconds", "ending", "reason"], ...time.from.map((from, index) => [
    time.rows[time.row[index]], PHASES[time.phase[index]].name, data.regions[time.region[index]]?.name ?? "", time.region[index] < 0 ? "" : time.trial[index] ?? "final",
    moment(time.start + from), time.seconds[index], details.texts[time.ending[index]], details.texts[time.reason[index]]])];
}

function fillTimeline() {
  if (details.timeline.from.length) return slotTimeline(byId("slots"), details.timeline, stretch, stretches);
  byId("slots").replaceChildren(element("p", {className: "quiet", textContent: "No event log of HTCondor tells of a job yet."}));
  return null;
}

function fillFailures() {
  const rows = group => group.region.map((place, at) => ({region: data.regions[place], trial: group.trial[at], machine: details.texts[group.machine[at]], reason: details.texts[group.reason[at]], kind: group.kind, cause: group.cause}));
  const columns = [
    {title: "region", get: row => row.region.name, node: row => element("button", {type: "button", className: "link", textContent: row.region.name, onclick: () => { openRegion(row.region); if (row.trial !== null && row.trial >= 0) pickTrial(row.trial); }})},
    {title: "trial", get: row => row.trial === null ? "final" : row.trial < 0 ? "" : row.trial}, {title: "machine", get: row => row.machine}, {title: "reason", long: true, get: row => row.reason},
  ];
  const causes = details.failures.map((group, number) => {
    const machines = new Set(group.machine.filter(Boolean)).size, regions = new Set(group.region).size, place = element("div");
    const summary = element("summary", {}, element("b", {textContent: `${group.region.length} × ${group.kind}`}), `: ${group.cause || "no reason given"} (${plural(regions, "region")}${machines ? `, ${plural(machines, "machine")}` : ""})`);
    return element("details", {id: `failure-${number + 1}`, ontoggle: event => { if (event.target.open && !place.hasChildNodes()) makeTable(place, {name: `failure-${number + 1}`, title: group.kind, columns, rows: rows(group)}); }}, summary, place);
  });
  const all = () => [["kind", "cause", "region", "trial", "machine", "reason"], ...details.failures.flatMap(rows).map(row => [row.kind, row.cause, ...columns.map(column => column.get(row))])];
  byId("causes").replaceChildren(...(causes.length ? [...causes, element("div", {className: "below"}, csvButton("failures", all))] : [element("p", {className: "quiet", textContent: "Nothing has failed."})]));
}

// --- start ------------------------------------------------------------------------------------------------

function redraw() {
  colours.clear();
  redraws.forEach(draw => draw());
}

function loadDetails() {
  unpacking ??= parsed.then(() => unpacked("details")).then(text => { details = JSON.parse(text); });
  return unpacking;
}

const OPENERS = { // what a section shows when it comes into sight
  async region() {
    picked.rows = trialRows(picked.region);
    fillAbout();
    fillConfusion();
    fillTrials();
    if (!details.trials.some(columns => columns.trial.length) && !data.live.length) return;
    await (library ??= loadLibrary());
    regionPictures = prepareRegion();
    for (const draw of regionPictures) {
      draw();
      redraws.push(draw);
      await nextTask(); // so that the page answers between two pictures
    }
  },
  async timeline() {
    if (details.timeline.from.length) await (library ??= loadLibrary());
    const draw = fillTimeline();
    if (!draw) return;
    draw();
    redraws.push(draw);
  },
  async failures() { fillFailures(); },
};

async function open(name) {
  if (opened.has(name)) return;
  opened.add(name);
  byId(name).dataset.open = "";
  try {
    await loadDetails();
    await OPENERS[name]();
    byId(name).dataset.drawn = "";
    if (Object.keys(OPENERS).every(one => byId(one).dataset.drawn === "")) document.documentElement.dataset.drawn = "yes";
  } catch (error) {
    fail(error);
  }
}

function openInSight() {
  const seen = new IntersectionObserver(entries => entries.filter(entry => entry.isIntersecting).forEach(({target}) => { seen.unobserve(target); open(target.id); }), {rootMargin: "150px"});
  for (const name of Object.keys(OPENERS)) seen.observe(byId(name));
}

function listenToScreen() {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const paper = on => () => { document.documentElement.toggleAttribute("data-paper", on); picked.overview.paper(on); redraw(); };
  addEventListener("beforeprint", paper(true));
  addEventListener("afterprint", paper(false));
  let width = innerWidth, waiting;
  addEventListener("resize", () => { // also when an address bar comes and goes, which changes the height alone
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (width !== innerWidth && !document.documentElement.hasAttribute("data-paper")) { width = innerWidth; redraw(); } }, 150);
  });
}

async function start() {
  data = JSON.parse(await unpacked("data"));
  AGAINST.floor = data.floor_name;
  picked.sort = {title: `${asked()}s`, way: "descending"};
  const state = keptState();
  if (state) history.scrollRestoration = "manual";
  fillHead();
  fillHeadline();
  fillChoices();
  fillRegions();
  startMap();
  if (state) takeFields(state);
  fillMap();
  fillOverview();
  fillRunning();
  pickRegion(data.regions.find(region => region.slug === state?.region) ?? data.regions.find(region => region.proposed) ?? data.regions[0]);
  for (const part of document.querySelectorAll("header, main")) part.hidden = false;
  if (state) takeScroll(state);
  tell("");
  for (const name of state?.opened ?? []) if (OPENERS[name]) await open(name); // as high as it was
  if (state?.trial !== null && state?.trial !== undefined && details) pickTrial(state.trial);
  if (state) takePlace(state);
  openInSight();
  listenToScreen();
  watchForNewer();
}

function fail(error) {
  tell(typeof DecompressionStream === "undefined" ? "This page needs a browser of 2023 or later; summary.md beside it has the table." : `The page could not be built: ${error.message}`);
  console.error(error);
}

start().then(() => { document.documentElement.dataset.ready = "yes"; }).catch(fail);
