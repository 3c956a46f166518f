// One region: what serves beside what is simpler, its search in pictures and its trials. Pictures and trials are unpacked
// when the section comes into sight.

let library = null; // plotly.js: a promise, from the first picture on
let regionPictures = []; // none before
const MOST_CLASSES = 20; // of which all pairs are known, as in nnlib/confusion.py
const withInterval = row => short(row.value) + (isNumber(row.half) ? ` ± ${digits(row.half, 4)}` : isNumber(row.error) ? ` ± ${digits(row.error, 4)} (standard error)` : "");
const among = row => [`trial ${row.trial}`, row.customers ? plural(row.customers, asked()) : "", isNumber(row.floor) ? `${picked.region.floor_name} ${short(row.floor)}` : ""].filter(Boolean).join(", ");

async function loadLibrary() {
  await parsed;
  document.head.append(element("script", {textContent: await unpacked("library")}));
  if (!globalThis.Plotly) throw new Error("plotly.js did not start");
}

function pickRegion(region) {
  Object.assign(picked, {region, rows: details ? trialRows(region) : [], trial: null});
  byId("pick").value = region.slug;
  byId("region-title").textContent = `One region: ${region.name}`;
  fillAbout();
  fillBeside();
  if (details) {
    fillConfusion();
    fillTrials();
  }
  picked.overview?.mark();
  markMap();
  drawRegion();
}

function openRegion(region) {
  pickRegion(region);
  byId("region").scrollIntoView();
  byId("region-title").focus({preventScroll: true}); // or the keyboard would go on from what was left
}

function fillAbout() {
  const {region, rows} = picked, best = details ? bestOf(region, rows) : null;
  const facts = [["outcome", `${outcome(region)}${region.against ? `, against ${rivalOf(region, region.against)}` : ""}${region.status === region.verdict ? "" : ` (${region.status})`}`],
    ["why", region.verdict === "unfinished" && data.refresh ? "its jobs are running or waiting" : region.reason], ["served by", region.serves], ["before", region.incumbent],
    ["its search", region.searched_by ? "" : `${plural(region.proposed, "trial")} of ${region.counts.planned}${best ? `; best ${region.metric} on the validation part ${withInterval(best)} (${among(best)})` : ""}`],
    ["left to gain", region.left]];
  const list = element("dl", {className: "facts"}, ...facts.filter(([, text]) => text).flatMap(([name, text]) => [element("dt", {textContent: name}), element("dd", {textContent: text})]));
  const source = region.searched_by && data.regions.find(one => one.name === region.searched_by);
  if (region.searched_by) list.append(element("dt", {textContent: "its search"}), element("dd", {}, "is that of ", source ? regionLink(source.name) : region.searched_by));
  byId("about").replaceChildren(list);
}

// What serves, and what was tested on the same customers, as bars with their figures.
function fillBeside() {
  const {region} = picked, metric = region.metric, rows = [["served", region.test[metric], ""], ["best simple method", region.simple[metric], "simple"], [region.floor_name, region.floor[metric], "floor"], ["bestsellers", region.bestsellers[metric], ""]].filter(([, value]) => isNumber(value));
  if (isNumber(region.gains.incumbent?.[0]) && rows.length) rows.splice(1, 0, ["what served before", region.test[metric] - region.gains.incumbent[0], "incumbent"]);
  const most = Math.max(...rows.map(([, value]) => value), 1e-9), [low, high] = region.intervals[metric] ?? [];
  const title = element("h3", {textContent: `${metric} on the test part`}), many = element("p", {className: "quiet", textContent: `${region.program && !region.customers ? "as the program says" : plural(region.customers, asked())}${isNumber(low) ? `; 95 % of what serves: ${low.toFixed(4)} to ${high.toFixed(4)}` : ""}`});
  const body = rows.map(([name, value, against]) => element("tr", {}, element("th", {scope: "row", textContent: name}), element("td", {className: "number", textContent: value.toFixed(4)}),
    element("td", {className: "bars", ariaHidden: "true"}, element("span", {style: `width:${(100 * value / most).toFixed(1)}%`, className: against || name !== "served" ? "" : "serves"})),
    element("td", {textContent: against && gainOf(region, against) ? `gain ${sayGain(gainOf(region, against))}` : ""})));
  byId("beside").replaceChildren(...(rows.length ? [title, element("table", {className: "beside"}, element("tbody", {}, ...body)), many] : []));
}

// What it took pictures for: a table of all classes, or the pairs of many that were confused most, and some pictures.
function fillConfusion() {
  const found = details.confusions?.[data.regions.indexOf(picked.region)], place = byId("confusion");
  if (!found) return place.replaceChildren();
  const {of, classes, pictures, pairs, examples} = found, whole = of <= MOST_CLASSES;
  const counts = pictures.map((all, at) => pictures.map((_, other) => at === other ? all : 0));
  for (const [actual, predicted, count] of pairs) {
    counts[actual][predicted] = count;
    counts[actual][actual] -= count;
  }
  const label = at => shortened(classes[at], 24), name = (tag, at, more) => element(tag, {textContent: label(at), title: classes[at], ...more});
  const head = textContent => element("th", {scope: "col", textContent}), number = (textContent, more) => element("td", {className: "number", textContent, ...more});
  const cell = (actual, predicted) => {
    const count = counts[actual][predicted], share = 60 * count / pictures[actual];
    return count ? number(count, {style: `background:color-mix(in srgb, var(--${actual === predicted ? "blue" : "orange"}) ${share.toFixed(0)}%, transparent)`}) : number(0, {className: "number quiet"});
  };
  const row = (actual, ...cells) => element("tr", {}, name("th", actual, {scope: "row"}), ...cells, number(pictures[actual]));
  const rows = whole ? classes.map((_, actual) => row(actual, ...classes.map((_, predicted) => cell(actual, predicted)))) : pairs.map(([actual, predicted]) => row(actual, name("td", predicted), cell(actual, predicted)));
  const heads = whole ? [head("class"), ...classes.map((_, at) => name("th", at, {scope: "col"})), head("pictures")] : ["class", "taken for", "pictures", "of"].map(head);
  const title = "What pictures were taken for", note = whole ? "Rows are what a picture of the test part shows, columns what it was taken for." : `The pairs of ${of.toLocaleString("en")} classes that were confused most on the test part.`;
  const table = element("table", {className: "confusion"}, element("caption", {className: "unseen", textContent: title}), element("thead", {}, element("tr", {}, ...heads)), element("tbody", {}, ...rows));
  const said = ({actual, predicted, probability}) => `${actual === predicted ? `✓ ${label(actual)}` : `✗ ${label(actual)} taken for ${label(predicted)}`}, ${(100 * probability).toFixed(0)} %`;
  const toCsv = () => [["class", "taken for", "pictures", "of"], ...pairs.map(([actual, predicted, count]) => [classes[actual], classes[predicted], count, pictures[actual]])];
  place.replaceChildren(element("h3", {textContent: title}), element("div", {className: "scroll", tabIndex: 0, role: "region", ariaLabel: title}, table),
    element("div", {className: "below"}, element("span", {className: "quiet", textContent: note}), csvButton(`${picked.region.slug}-confusion`, toCsv)),
    element("ul", {className: "examples"}, ...examples.map(one => element("li", {}, painted(one, said(one)), said(one)))));
}

// Pixels as they are: a byte for each channel, of which a grey picture has one.
function painted({width, height, channels, pixels}, label) {
  const bytes = atob(pixels), image = new ImageData(width, height), canvas = element("canvas", {width, height, role: "img", ariaLabel: label});
  for (let at = 0; at < image.data.length; at++) image.data[at] = at % 4 === 3 ? 255 : bytes.charCodeAt((at >> 2) * channels + Math.min(at % 4, channels - 1));
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function pickTrial(number) {
  picked.trial = picked.rows.find(row => String(row.trial) === String(number)) ?? null;
  byId("trial").value = picked.trial ? String(picked.trial.trial) : "";
  picked.table?.mark();
  drawRegion();
}

// By what a column of a hyperparameter is sorted: ordered options as they stand.
const orderOf = (parameter, value) => parameter.ordered && value !== null ? parameter.options.indexOf(value) : value;

function trialColumns(region) {
  const number = (title, get, show) => ({title, number: true, get, show});
  return [
    {...number("trial", row => row.trial), node: row => element("button", {type: "button", className: "link", textContent: row.trial, title: "mark this trial in the pictures", onclick: () => pickTrial(row.trial)})},
    {title: "status", get: row => row.status, show: row => row.status + (row.won ? " ★ won" : "")},
    number(region.metric, row => row.value, row => digits(row.value, 4)),
    ...(picked.rows.some(row => row.customers) ? [number("± 95 %", row => row.half, row => digits(row.half, 4)), number(`${asked()}s`, row => row.customers || null, row => row.customers ? row.customers.toLocaleString("en") : ""), number(region.floor_name, row => row.floor, row => digits(row.floor, 4))] : [number("± standard error", row => row.error, row => digits(row.error, 4))]),
    ...region.space.map((parameter, index) => ({title: parameter.name, number: !parameter.options, by: row => orderOf(parameter, row.point[index]), get: row => row.point[index], show: row => short(row.point[index])})),
    number("epochs", row => row.curve.length || null), number("best epoch", row => row.bestEpoch || null), number("seconds", row => row.seconds, row => digits(row.seconds, 1)),
    {title: "settled", screen: true, get: row => row.settled ? moment(row.settled) : ""},
    {title: "machine", screen: true, get: row => row.machine}, {title: "reason", long: true, get: row => row.reason},
  ].filter(column => column.title !== "reason" || picked.rows.some(row => row.reason)).filter(column => !column.number || ["trial", region.metric].includes(column.title) || picked.rows.some(row => isNumber(column.get(row))));
}

function fillTrials() {
  const {region, rows} = picked;
  byId("trial").replaceChildren(new Option("none picked", ""), ...rows.map(row => new Option(row.trial, row.trial)));
  for (const id of ["trials", "trials-title"]) byId(id).hidden = !rows.length;
  picked.table = makeTable(byId("trials"), {name: `${region.slug}-trials`, title: `Trials of ${region.name}`, columns: trialColumns(region), rows, picked: row => row === picked.trial});
}

function regionTables(kind) {
  const {region, rows} = picked, heads = ["region", "trial", "status"], first = row => [region.name, row.trial, row.status];
  if (kind === "curves") return [[...heads, "epoch", region.metric], ...rows.flatMap(row => row.curve.map((value, epoch) => [...first(row), epoch + 1, value]))];
  if (kind === "parallel") return [[...heads, ...region.space.map(parameter => parameter.name), region.metric], ...rows.filter(worked).map(row => [...first(row), ...row.point, row.value])];
  if (kind === "depends") return [["region", "hyperparameter", "value", region.metric, "low", "high"], ...dependences(region).flatMap(one => one.values.map((value, at) => [region.name, one.name, value, one.mean[at], one.low[at], one.high[at]]))];
  let best = null;
  return [[...heads, region.metric, "best so far", "reason"], ...rows.map(row => {
    if (worked(row) && (best === null || cost(region, row.value) < cost(region, best))) best = row.value;
    return [...first(row), row.value, best, row.reason];
  })];
}

function prepareRegion() {
  const titles = {history: "Tuning history", curves: "Learning curves", parallel: "Parallel coordinates", depends: "Partial dependence"};
  const draws = Object.fromEntries(Object.entries(titles).map(([kind, title]) => [kind, frame(byId(kind), title, kind, () => regionTables(kind))]));
  const listening = new Set();
  const show = (kind, traces, layout, text) => {
    byId(kind).hidden = !traces;
    const plot = draws[kind](traces, layout, text);
    if (!traces) listening.delete(plot);
    else if (!listening.has(plot)) {
      plot.on("plotly_click", event => event.points[0]?.customdata !== undefined && pickTrial(event.points[0].customdata));
      listening.add(plot);
    }
  };
  const history = () => {
    const {region, rows, trial} = picked, done = rows.filter(worked), failed = rows.filter(isFailure).length, pruned = rows.filter(row => row.status === "pruned").length;
    const some = done.length + failed + pruned > 0;
    show("history", some ? historyTraces(region, rows, trial) : null, historyLayout(region, rows),
      some ? `${plural(done.length, "value")}${failed ? `, ${failed} failed (crosses at the foot)` : ""}${pruned ? `, ${pruned} pruned (triangles)` : ""}; the star has won or leads. Click a trial to mark it.` : "");
  };
  const curves = () => {
    const {region, rows, trial} = picked, live = data.live.filter(one => data.regions[one.region] === region && one.curve.length), traces = curveTraces(region, rows, trial, live);
    show("curves", traces, curveLayout(region, rows, live), traces ? `${region.metric} on the validation part after each epoch${live.length ? `; ${plural(live.length, "trial")} running` : ""}.` : "");
  };
  const parallel = () => {
    const {region, rows, trial} = picked, done = rows.filter(worked), axes = done.length > 1 ? parallelAxes(region, done) : [];
    show("parallel", axes.length > 1 ? parallelTraces(region, axes, done, trial) : null, axes.length > 1 ? parallelLayout(axes, done, innerWidth < 600) : {}, axes.length > 1 ? `${done.length} trials; the better, the stronger the line.` : "");
  };
  const depends = () => {
    const found = dependences(picked.region), text = "what the tuner's model takes it to be at each value, averaged over the points of the trials, with 95 %: of the hyperparameters on which most depends.";
    show("depends", found.length ? dependenceTraces(picked.region, found) : null, found.length ? dependenceLayout(picked.region, found) : {}, found.length ? `${picked.region.metric}: ${text}` : "");
  };
  return [history, curves, parallel, depends];
}

const drawRegion = () => regionPictures.forEach(draw => draw());

function fillRegions() {
  byId("pick").replaceChildren(...data.regions.map(region => new Option(region.name, region.slug)));
  byId("pick").onchange = event => pickRegion(data.regions.find(region => region.slug === event.target.value));
  const step = by => pickRegion(data.regions[(data.regions.indexOf(picked.region) + by + data.regions.length) % data.regions.length]);
  byId("before").onclick = () => step(-1);
  byId("after").onclick = () => step(1);
  byId("trial").onchange = event => pickTrial(event.target.value);
}
