// The page as a whole: reads the figures, fills the sections, keeps what is picked, and redraws for paper and for dark screens.

const SYMBOLS = {promoted: "✓", kept: "=", failed: "✗", unfinished: "…"};
let data, texts;
const picked = {region: null, rows: [], trial: null};
const redraws = []; // every picture, in the order of the page: {place, draw}

const nextTask = () => new Promise(done => setTimeout(done));
const difference = (one, other) => isNumber(one) && isNumber(other) ? one - other : null;
const nodeName = trial => trial === null ? "final training" : trial < 0 ? "region" : `trial ${trial}`;

function tell(text) {
  byId("message").textContent = text;
}

function fillHead() {
  document.title = `${data.study} - regiondag report`;
  byId("study").textContent = data.study;
  byId("origin").textContent = `${data.run}, tuned by ${data.metric} on the validation part, as of ${moment(data.made)}`;
  const sum = of => data.regions.reduce((all, region) => all + (of(region) ?? 0), 0);
  const having = status => data.regions.filter(region => region.status === status).length;
  const trials = sum(region => region.counts.run), unpriced = data.regions.filter(region => region.cost === null).length;
  const figures = [
    ["regions", data.regions.length], ["promoted", having("promoted")], ["kept", having("kept")], ["failed", having("failed")], ["unfinished", having("unfinished")],
    ["trials settled", `${trials} of ${sum(region => region.counts.planned)}`], ["trials failed", sum(region => region.counts.failed)], ["pruned", sum(region => region.counts.pruned)],
    ["hours of training", digits(sum(region => region.hours), 2)], ["GPU hours", data.gpu_hours ? digits(data.gpu_hours, 2) : "-"],
    ["hours lost on slots", digits(data.lost_hours, 2) || "-"], ["evictions", data.timeline.from.length ? data.evictions : "-"],
    [unpriced && data.currency ? `cost (unknown of ${unpriced} regions)` : "cost",
      !data.currency ? "-" : data.cost === null ? "unknown" : `${unpriced ? "≥ " : ""}${data.cost.toFixed(2)} ${data.currency}`],
  ];
  byId("cautions").replaceChildren(...data.cautions.map(text => element("li", {}, element("b", {textContent: "Caution: "}), text)));
  byId("totals").replaceChildren(...figures.map(([name, value]) => element("div", {}, element("dt", {textContent: name}), element("dd", {textContent: value}))));
}

// --- all regions ------------------------------------------------------------------------------------------

function interval(region, metric) {
  const [low, high] = region.intervals[metric] ?? [null, null];
  return isNumber(low) && isNumber(high) ? `${Math.max(low, 0).toFixed(3)} to ${Math.min(high, 1).toFixed(3)}` : "";
}

function overviewColumns(metric) {
  const figure = (title, of, show = value => digits(value, 4)) => ({title, number: true, get: region => of(region) ?? null, show: region => show(of(region) ?? null)});
  const own = (title, of, show) => figure(title, region => region.searched_by ? null : of(region), value => value === null ? "-" : show(value));
  const columns = [
    {title: "region", get: region => region.name, node: region => element("button", {type: "button", className: "link", textContent: region.name, onclick: () => { pickRegion(region); goToRegion(); }})},
    {title: "status", get: region => region.status, show: region => `${SYMBOLS[region.status] ?? ""} ${region.status}`},
    figure("customers", region => region.customers || (region.serves && !Object.keys(region.test).length ? 0 : null), value => value?.toLocaleString("en") ?? ""), figure(`test ${metric}`, region => region.test[metric]),
    {title: "95 %", number: true, get: region => interval(region, metric)},
    figure("recent popularity", region => region.floor[metric]), figure("over recent popularity", region => difference(region.test[metric], region.floor[metric]), signed),
    figure("best simple", region => region.simple[metric]), figure("bestsellers", region => region.bestsellers[metric]),
    {title: "served by", long: true, get: region => region.serves}, {title: "reason", long: true, get: region => region.reason},
    ...["run", "failed", "pruned"].map(count => own(count === "run" ? "trials run" : count, region => region.counts[count], short)),
    own("hours", region => region.hours, value => digits(value, 3)),
  ];
  if (data.currency) columns.push(figure(`cost (${data.currency})`, region => region.cost, value => value === null ? "unknown" : digits(value, 2)));
  return columns;
}

function fillOverview() {
  const metrics = [...new Set([...data.regions.map(region => region.metric), ...data.regions.flatMap(region => Object.keys(region.test))])];
  byId("metric").replaceChildren(...metrics.map(metric => new Option(metric, metric)));
  for (const status of new Set(data.regions.map(region => region.status))) byId("status").add(new Option(status, status));
  const visible = () => {
    const wanted = byId("find").value.toLowerCase(), status = byId("status").value;
    const all = region => [region.name, region.slug, region.reason, region.serves].join("\n").toLowerCase();
    return data.regions.filter(region => (!status || region.status === status) && all(region).includes(wanted));
  };
  const make = () => {
    picked.overview = makeTable(byId("overview"), {name: "regions", title: "All regions", columns: overviewColumns(byId("metric").value), rows: visible(), picked: region => region === picked.region});
  };
  byId("find").oninput = byId("status").onchange = () => picked.overview.show(visible());
  byId("metric").onchange = make;
  make();
}

// --- one region -------------------------------------------------------------------------------------------

const withInterval = row => short(row.value) + (isNumber(row.half) ? ` ± ${digits(row.half, 4)}` : "");
const among = row => [`trial ${row.trial}`, row.customers ? `${row.customers.toLocaleString("en")} customers` : "", isNumber(row.floor) ? `recent popularity ${short(row.floor)}` : ""].filter(Boolean).join(", ");

function pickRegion(region) {
  Object.assign(picked, {region, rows: trialRows(region), trial: null});
  byId("pick").value = region.slug;
  byId("region-title").textContent = `One region: ${region.name}`;
  byId("trial").replaceChildren(new Option("none picked", ""), ...picked.rows.map(row => new Option(row.trial, row.trial)));
  const best = bestOf(region, picked.rows), none = region.searched_by ? `its trials are those of ${region.searched_by}` : "no trial has been proposed yet";
  byId("about").textContent = [`${SYMBOLS[region.status] ?? ""} ${region.status}`, region.reason, picked.rows.length ? `${picked.rows.length} trials` : none,
    best ? `best ${region.metric} ${withInterval(best)} (${among(best)})` : ""].filter(Boolean).join("; ");
  fillTrials();
  picked.overview.mark();
  drawRegion();
}

function goToRegion() {
  byId("region").scrollIntoView();
  byId("region-title").focus({preventScroll: true}); // or the keyboard would go on from the table that was left
}

function pickTrial(number) {
  picked.trial = picked.rows.find(row => String(row.trial) === String(number)) ?? null;
  byId("trial").value = picked.trial ? String(picked.trial.trial) : "";
  picked.table.mark();
  drawRegion();
}

function trialColumns(region) {
  const number = (title, get, show) => ({title, number: true, get, show});
  return [
    {...number("trial", row => row.trial), node: row => element("button", {type: "button", className: "link", textContent: row.trial, title: "mark this trial in the pictures", onclick: () => pickTrial(row.trial)})},
    {title: "status", get: row => row.status, show: row => row.status + (row.won ? " ★ won" : "")},
    number(region.metric, row => row.value, row => short(row.value)),
    ...(picked.rows.some(row => row.customers) ? [number("± 95 %", row => row.half, row => digits(row.half, 4)), number("customers", row => row.customers || null), number("recent popularity", row => row.floor, row => short(row.floor))] : []),
    ...region.space.map((parameter, index) => ({title: parameter.name, number: !parameter.options, get: row => row.point[index], show: row => short(row.point[index])})),
    number("epochs", row => row.curve.length || null), number("best epoch", row => row.bestEpoch), number("seconds", row => row.seconds, row => digits(row.seconds, 1)),
    {title: "settled", get: row => row.settled ? moment(row.settled) : ""},
    {title: "machine", get: row => row.machine}, {title: "reason", long: true, get: row => row.reason},
  ];
}

function fillTrials() {
  const {region, rows} = picked;
  picked.table = makeTable(byId("trials"), {name: `${region.slug}-trials`, title: `Trials of ${region.name}`, columns: trialColumns(region), rows, picked: row => row === picked.trial});
}

function regionTables(kind) {
  const {region, rows} = picked, heads = ["region", "trial", "status"], first = row => [region.name, row.trial, row.status];
  if (kind === "curves") return [[...heads, "epoch", region.metric], ...rows.flatMap(row => row.curve.map((value, epoch) => [...first(row), epoch + 1, value]))];
  if (kind === "parallel") return [[...heads, ...region.space.map(parameter => parameter.name), region.metric], ...rows.filter(worked).map(row => [...first(row), ...row.point, row.value])];
  let best = null;
  return [[...heads, region.metric, "best so far", "reason"], ...rows.map(row => {
    if (worked(row) && (best === null || cost(region, row.value) < cost(region, best))) best = row.value;
    return [...first(row), row.value, best, row.reason];
  })];
}

function prepareRegion() {
  const figures = [["history", "Tuning history"], ["curves", "Learning curves"], ["parallel", "Parallel coordinates"]].map(([kind, title]) => {
    const draw = frame(byId(kind), title, kind, () => regionTables(kind));
    return [kind, draw];
  });
  const draws = Object.fromEntries(figures);
  const listening = new Set();
  const show = (kind, traces, layout, text) => {
    const plot = draws[kind](traces, layout, text);
    if (!traces) listening.delete(plot);
    else if (!listening.has(plot)) {
      plot.on("plotly_click", event => event.points[0]?.customdata !== undefined && pickTrial(event.points[0].customdata));
      listening.add(plot);
    }
  };
  const history = () => {
    const {region, rows, trial} = picked, done = rows.filter(worked), failed = rows.filter(isFailure).length;
    const pruned = rows.filter(row => row.status === "pruned").length;
    show("history", done.length + failed + pruned ? historyTraces(region, rows, trial) : null, historyLayout(region, rows),
      done.length + failed + pruned ? `${done.length} values, ${failed} failed (crosses at the foot), ${pruned} pruned (triangles); the star has won or leads. Click a trial to mark it.` : "No trial has ended yet.");
  };
  const curves = () => {
    const {region, rows, trial} = picked, traces = curveTraces(region, rows, trial);
    show("curves", traces, curveLayout(region, rows), traces ? `${region.metric} on the validation part after each epoch.` : "No trial has a learning curve yet.");
  };
  const parallel = () => {
    const {region, rows, trial} = picked, done = rows.filter(worked);
    const axes = done.length > 1 ? parallelAxes(region, done) : [];
    show("parallel", axes.length > 1 ? parallelTraces(region, axes, done, trial) : null, axes.length > 1 ? parallelLayout(axes, done, innerWidth < 600) : {},
      axes.length > 1 ? `${done.length} trials; the better, the stronger the line.` : "Two values and a hyperparameter that varies are needed.");
  };
  return [history, curves, parallel];
}

let regionPictures = []; // none while the library is loaded
const drawRegion = () => regionPictures.forEach(draw => draw());

function fillRegions() {
  byId("pick").replaceChildren(...data.regions.map(region => new Option(region.name, region.slug)));
  byId("pick").onchange = event => pickRegion(data.regions.find(region => region.slug === event.target.value));
  const step = by => pickRegion(data.regions[(data.regions.indexOf(picked.region) + by + data.regions.length) % data.regions.length]);
  byId("before").onclick = () => step(-1);
  byId("after").onclick = () => step(1);
  byId("trial").onchange = event => pickTrial(event.target.value);
  pickRegion(data.regions.find(region => region.trials.trial.length) ?? data.regions[0]);
}

// --- timeline and failures --------------------------------------------------------------------------------

function stretch(index) {
  const time = data.timeline, region = data.regions[time.region[index]];
  const facts = [region ? `${region.name}, ${nodeName(time.trial[index])}` : "", lasting(time.seconds[index]), `from ${moment(time.start + time.from[index])}`, texts[time.ending[index]], texts[time.reason[index]]];
  return facts.filter(Boolean).join(", ");
}

function stretches() {
  const time = data.timeline;
  return [["slot", "phase", "region", "trial", "start", "seconds", "ending", "reason"], ...time.from.map((from, index) => [
    time.rows[time.row[index]], PHASES[time.phase[index]].name, data.regions[time.region[index]]?.name ?? "", time.region[index] < 0 ? "" : time.trial[index] ?? "final",
    moment(time.start + from), time.seconds[index], texts[time.ending[index]], texts[time.reason[index]]])];
}

function fillTimeline() {
  if (data.timeline.from.length) redraws.push({place: byId("slots"), draw: slotTimeline(byId("slots"), data.timeline, stretch, stretches)});
  else byId("slots").append(element("p", {className: "quiet", textContent: "No event log of HTCondor tells of a job yet."}));
}

function fillFailures() {
  const rows = group => group.region.map((place, at) => ({region: data.regions[place], trial: group.trial[at], machine: texts[group.machine[at]], reason: texts[group.reason[at]], kind: group.kind, cause: group.cause}));
  const columns = [
    {title: "region", get: row => row.region.name, node: row => element("button", {type: "button", className: "link", textContent: row.region.name, onclick: () => { pickRegion(row.region); if (row.trial !== null && row.trial >= 0) pickTrial(row.trial); goToRegion(); }})},
    {title: "trial", get: row => row.trial === null ? "final" : row.trial < 0 ? "" : row.trial}, {title: "machine", get: row => row.machine}, {title: "reason", long: true, get: row => row.reason},
  ];
  const causes = data.failures.map((group, number) => {
    const machines = new Set(group.machine.filter(Boolean)).size, regions = new Set(group.region).size, place = element("div");
    const summary = element("summary", {}, element("b", {textContent: `${group.region.length} × ${group.kind}`}), `: ${group.cause || "no reason given"} (${regions} regions${machines ? `, ${machines} machines` : ""})`);
    return element("details", {ontoggle: event => { if (event.target.open && !place.hasChildNodes()) makeTable(place, {name: `failure-${number + 1}`, title: group.kind, columns, rows: rows(group)}); }}, summary, place);
  });
  const all = () => [["kind", "cause", "region", "trial", "machine", "reason"], ...data.failures.flatMap(rows).map(row => [row.kind, row.cause, ...columns.map(column => column.get(row))])];
  byId("causes").replaceChildren(...(causes.length ? [...causes, element("div", {className: "below"}, csvButton("failures", all))] : [element("p", {className: "quiet", textContent: "Nothing has failed."})]));
}

// --- start ------------------------------------------------------------------------------------------------

function redraw() {
  colours.clear();
  redraws.forEach(({draw}) => draw());
}

async function drawEach(pictures) {
  for (const {draw} of pictures) {
    draw();
    await nextTask(); // so that the tables answer between two pictures
  }
}

function startLibrary(text) {
  document.head.append(element("script", {textContent: text}));
  if (!globalThis.Plotly) throw new Error("plotly.js did not start");
}

async function start() {
  const figures = unpacked("data"), library = unpacked("library"); // beside each other, and beside the tables
  data = JSON.parse(await figures);
  texts = data.texts;
  fillHead();
  fillOverview();
  fillRegions();
  fillFailures();
  document.querySelector("main").hidden = false;
  tell("Loading the pictures.");
  await nextTask(); // the tables are to be seen first
  startLibrary(await library);
  fillTimeline();
  regionPictures = prepareRegion();
  redraws.push(...["history", "curves", "parallel"].map((id, at) => ({place: byId(id), draw: regionPictures[at]})));
  const inView = redraws.filter(({place}) => place.getBoundingClientRect().top < innerHeight);
  await drawEach(inView);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
  const paper = on => () => { document.documentElement.toggleAttribute("data-paper", on); redraw(); };
  addEventListener("beforeprint", paper(true));
  addEventListener("afterprint", paper(false));
  let width = innerWidth, waiting;
  addEventListener("resize", () => { // also when an address bar comes and goes, which changes the height alone
    clearTimeout(waiting);
    waiting = setTimeout(() => { if (width !== innerWidth && !document.documentElement.hasAttribute("data-paper")) { width = innerWidth; redraw(); } }, 150);
  });
  tell("");
  return redraws.filter(one => !inView.includes(one));
}

start().then(async below => {
  document.documentElement.dataset.ready = "yes";
  await drawEach(below);
  document.documentElement.dataset.drawn = "yes";
}).catch(error => {
  tell(typeof DecompressionStream === "undefined" ? "This page needs a browser of 2023 or later; summary.md beside it has the table." : `The page could not be built: ${error.message}`);
  console.error(error);
});
