// The pictures of one region. Lines are SVG, as no picture needs more than some hundred of them: they print, and need no WebGL.

const ABSENT = -0.12; // where lines pass a hyperparameter that the trial does not have
const WIDE = 50; // from here on losses are drawn on a log scale
const MOST_LABELS = 12; // options that are named at an axis
const BUCKETS = 6; // shades of the parallel coordinates

const CONFIG = {displayModeBar: false, showTips: false, doubleClick: "reset"};

function layoutOf(more) {
  const axis = {gridcolor: colour("grid"), linecolor: colour("line"), zeroline: false, ticks: "outside",
    tickcolor: colour("line")};
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", height: 340,
    // Fixed, with room for a legend: Plotly draws everything twice where it has to find out the margins.
    margin: {l: 72, r: 12, t: innerWidth < 600 ? 64 : 44, b: 44, autoexpand: false},
    font: {family: "system-ui, sans-serif", size: 12, color: colour("ink")}, hovermode: "closest",
    hoverlabel: {align: "left", bgcolor: colour("paper"), bordercolor: colour("grey"), font: {color: colour("ink")}},
    legend: {orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: {size: 11}},
    dragmode: innerWidth < 600 ? false : "zoom", // where a finger has to scroll
    ...more, xaxis: {...axis, ...more.xaxis}, yaxis: {...axis, ...more.yaxis},
  };
}

// Puts heading, plot and CSV button into a figure once; returns how to draw it again.
function frame(figure, title, name, rows) {
  const plot = element("div", {className: "plot"});
  plot.setAttribute("role", "img");
  const caption = element("figcaption");
  figure.replaceChildren(element("h3", {textContent: title}), plot, element("div", {className: "below"}, caption, csvButton(name, rows)));
  return (traces, layout, text) => {
    caption.textContent = text;
    plot.setAttribute("aria-label", `${title}: ${text}`);
    plot.hidden = !traces;
    if (traces) Plotly.react(plot, traces, {...layoutOf(layout), width: plot.clientWidth}, CONFIG);
    else Plotly.purge(plot);
    return plot;
  };
}

const cost = (region, value) => region.minimize ? value : -value;
const isWide = (region, values) => region.minimize && values.length > 1 && Math.min(...values) > 0 && Math.max(...values) / Math.min(...values) > WIDE;

// One object a trial, of the columns that the page holds.
function trialRows(region) {
  const columns = details.trials[data.regions.indexOf(region)], {texts} = details;
  return columns.trial.map((trial, at) => ({
    trial, at, status: texts[columns.status[at]], value: columns.value[at], half: columns.half[at], error: columns.error?.[at], customers: columns.customers[at], floor: columns.floor[at], bestEpoch: columns.best_epoch[at],
    seconds: columns.seconds[at], settled: columns.settled[at], machine: texts[columns.machine[at]],
    reason: texts[columns.reason[at]], curve: columns.curves[at], won: columns.won === trial,
    point: columns.points.map(values => values[at]),
  }));
}

const worked = row => row.status === "ok" && row.value !== null;
const isFailure = row => !worked(row) && row.status !== "pruned" && row.status !== "running";

function bestOf(region, rows) {
  const done = rows.filter(worked);
  return done.find(row => row.won) || done.reduce((best, row) => !best || cost(region, row.value) < cost(region, best.value) ? row : best, null);
}

const about = (region, row) => inert(`trial ${row.trial}: ${region.metric} ${short(row.value)}, ${row.status}`) +
  region.space.map((parameter, index) => row.point[index] === null ? "" : `<br>${inert(shortened(parameter.name, 40))} ${inert(shortened(short(row.point[index]), 40))}`).join("");

// --- tuning history ---------------------------------------------------------------------------------------

function historyTraces(region, rows, picked) {
  const points = (some, name, symbol, shade, size = 7) => ({
    name, mode: "markers", x: some.map(row => row.trial), y: some.map(row => row.value), customdata: some.map(row => row.trial),
    text: some.map(row => about(region, row)), hovertemplate: "%{text}<extra></extra>", marker: {symbol, color: colour(shade), size},
  });
  const done = rows.filter(worked), pruned = rows.filter(row => row.status === "pruned" && row.value !== null);
  const best = [];
  for (const row of done) best.push(best.length && cost(region, best.at(-1)) < cost(region, row.value) ? best.at(-1) : row.value);
  const traces = [
    {name: "best so far", mode: "lines", line: {shape: "hv", color: colour("orange"), width: 2}, hoverinfo: "skip",
      x: [...done.map(row => row.trial), ...(done.length ? [rows.at(-1).trial] : [])], y: [...best, ...best.slice(-1)]},
    points(done, "trial", "circle", "blue"), points(pruned, "pruned", "triangle-down-open", "grey"),
  ];
  const failed = rows.filter(isFailure);
  if (failed.length) traces.push({...points(failed, "failed", "x-thin-open", "red", 8), y: failed.map(() => 0.5), yaxis: "y2",
    text: failed.map(row => inert(`trial ${row.trial}: ${row.status}: ${shortened(row.reason, 80)}`)), marker: {symbol: "x-thin-open", color: colour("red"), size: 8, line: {width: 2}}});
  const winner = bestOf(region, rows);
  if (winner) traces.push({...points([winner], "winner", "star", "orange", 13)});
  if (picked && picked.value !== null) traces.push({...points([picked], "picked", "square-open", "ink", 14)});
  return traces;
}

function historyLayout(region, rows) {
  const wide = isWide(region, rows.filter(row => row.value !== null).map(row => row.value));
  return {
    xaxis: {title: {text: "trial"}, anchor: "y2"}, yaxis: {title: {text: inert(region.metric)}, type: wide ? "log" : "linear", domain: [0.08, 1]},
    yaxis2: {domain: [0, 0.06], range: [0, 1], showgrid: false, zeroline: false, tickvals: [], fixedrange: true},
  };
}

// --- learning curves --------------------------------------------------------------------------------------

function curveTraces(region, rows, picked, live) {
  const one = (some, more) => ({
    mode: "lines", hovertemplate: "trial %{customdata}, epoch %{x}: %{y:.4g}<extra></extra>", connectgaps: false,
    x: some.flatMap(row => [...row.curve.map((_, epoch) => epoch + 1), null]), y: some.flatMap(row => [...row.curve, null]),
    customdata: some.flatMap(row => [...row.curve.map(() => row.trial), null]), ...more,
  });
  const withCurve = rows.filter(row => row.curve.length), winner = bestOf(region, rows);
  const full = withCurve.filter(row => row.status !== "pruned"), pruned = withCurve.filter(row => row.status === "pruned");
  const traces = [one(full, {name: "trial", line: {color: colour("grey"), width: 0.8}, opacity: 0.55})];
  if (pruned.length) traces.push(one(pruned, {name: "pruned", line: {color: colour("grey"), width: 0.8, dash: "dot"}}));
  if (winner && winner.curve.length) traces.push(one([winner], {name: `winner, trial ${winner.trial}`, mode: "lines+markers", line: {color: colour("orange"), width: 2.5}, marker: {size: 4}}));
  if (picked && picked.curve.length) traces.push(one([picked], {name: `picked, trial ${picked.trial}`, line: {color: colour("ink"), width: 2, dash: "dash"}}));
  const running = live.map((one, at) => ({name: "running", legendgroup: "running", showlegend: !at, mode: "lines+markers", hovertemplate: `trial ${one.trial ?? "final"}, running: %{y:.4g}<extra></extra>`,
    x: one.curve.map((_, point) => one.curve.length > 1 ? 1 + point * (Math.max(one.epoch, one.curve.length) - 1) / (one.curve.length - 1) : one.epoch), y: one.curve, line: {color: colour("green"), width: 2}, marker: {size: 4, symbol: "diamond"}}));
  return withCurve.length || running.length ? [...traces, ...running] : null;
}

function curveLayout(region, rows, live) {
  const values = [...rows, ...live].flatMap(row => row.curve).filter(isNumber);
  const [low, high] = values.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
  return {xaxis: {title: {text: "epoch"}}, yaxis: {title: {text: inert(region.metric)}, type: region.minimize && low > 0 && high / low > WIDE ? "log" : "linear"}};
}

// --- parallel coordinates ---------------------------------------------------------------------------------

// An axis: its name, where a value lies on it (0 to 1), and [place, label] of its ends or options.
function axisOf(parameter) {
  if (parameter.options) {
    const last = Math.max(parameter.options.length - 1, 1), every = Math.ceil(parameter.options.length / MOST_LABELS);
    return {name: parameter.name, place: value => parameter.options.indexOf(value) / last,
      labels: parameter.options.map((option, index) => [index / last, short(option)]).filter((_, index) => index % every === 0)};
  }
  return rangeAxis(parameter.name, parameter.low, parameter.high, parameter.log);
}

function rangeAxis(name, low, high, log) {
  const scale = log ? Math.log10 : value => value, width = scale(high) - scale(low) || 1;
  const place = value => (scale(value) - scale(low)) / width;
  const labels = [[0, short(low)], [1, short(high)]];
  if (log) {
    for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) {
      const at = place(10 ** power);
      if (at > 0.08 && at < 0.92) labels.push([at, short(10 ** power)]);
    }
  } else labels.push([0.5, short((low + high) / 2)]);
  return {name: log ? `${shortened(name, 20)} (log)` : name, place, labels};
}

function parallelAxes(region, rows) {
  const values = rows.map(row => row.value), varied = region.space.map((_, index) => index).filter(index => {
    const parameter = region.space[index];
    const some = 2 * rows.filter(row => row.point[index] !== null).length >= rows.length; // others are lines that pass by
    return some && (parameter.options ? parameter.options.length > 1 : parameter.high > parameter.low);
  });
  const axes = varied.map(index => ({...axisOf(region.space[index]), of: row => row.point[index]}));
  const ends = [Math.min(...values), Math.max(...values)];
  axes.push({...rangeAxis(region.metric, ...ends, isWide(region, values)), of: row => row.value});
  return axes;
}

function parallelTraces(region, axes, rows, picked) {
  const heights = row => axes.map(axis => axis.of(row) === null ? ABSENT : axis.place(axis.of(row)));
  const one = (some, more) => ({
    mode: "lines", hovertemplate: "%{text}<extra></extra>", showlegend: false,
    x: some.flatMap(() => [...axes.keys(), null]), y: some.flatMap(row => [...heights(row), null]),
    customdata: some.flatMap(row => [...axes.map(() => row.trial), null]),
    text: some.flatMap(row => [...Array(axes.length).fill(about(region, row)), null]), ...more,
  });
  const ranked = [...rows].sort((left, right) => cost(region, right.value) - cost(region, left.value)); // the best is on top
  const traces = [];
  for (let bucket = 0; bucket < BUCKETS; bucket++) {
    const some = ranked.slice(ranked.length * bucket / BUCKETS, ranked.length * (bucket + 1) / BUCKETS);
    const part = bucket / (BUCKETS - 1);
    traces.push(one(some, {line: {color: mixed(colour("low"), colour("blue"), part), width: 0.8 + 0.5 * part}}));
  }
  const winner = bestOf(region, rows);
  traces.push(one([winner], {name: `winner, trial ${winner.trial}`, showlegend: true, mode: "lines+markers", line: {color: colour("orange"), width: 3}, marker: {symbol: "star", size: 8}}));
  if (picked && worked(picked)) traces.push(one([picked], {name: `picked, trial ${picked.trial}`, showlegend: true, line: {color: colour("ink"), width: 2, dash: "dash"}}));
  return traces;
}

function mixed(from, to, part) {
  const bytes = text => [1, 3, 5].map(at => parseInt(text.slice(at, at + 2), 16));
  const [one, other] = [from.length === 4 ? from.replace(/[^#]/g, "$&$&") : from, to.length === 4 ? to.replace(/[^#]/g, "$&$&") : to].map(bytes);
  return `rgb(${one.map((value, at) => Math.round(value + (other[at] - value) * part)).join(",")})`;
}

function parallelLayout(axes, rows, narrow) {
  const someAbsent = axes.some(axis => rows.some(row => axis.of(row) === null));
  const labels = axes.flatMap((axis, index) => [...axis.labels, ...(rows.some(row => axis.of(row) === null) ? [[ABSENT, "absent"]] : [])]
    .map(([y, text]) => ({x: index, y, text: inert(shortened(text, 14)), showarrow: false, xanchor: "left", xshift: 3, font: {size: 10}, bgcolor: colour("paper"), opacity: 0.85, borderpad: 1})));
  return {
    height: 380, margin: {l: 48, r: 60, t: 44, b: narrow ? 90 : 60, autoexpand: false}, annotations: labels,
    shapes: axes.map((_, index) => ({type: "line", x0: index, x1: index, y0: 0, y1: 1, layer: "below", line: {color: colour("grey"), width: 1}})),
    xaxis: {tickvals: [...axes.keys()], ticktext: axes.map(axis => inert(shortened(axis.name, narrow ? 14 : 24))), showgrid: false, range: [-0.15, axes.length - 1 + 0.35], ticks: "", fixedrange: true},
    yaxis: {visible: false, range: [someAbsent ? ABSENT - 0.06 : -0.06, 1.06], fixedrange: true},
  };
}

// --- partial dependence -----------------------------------------------------------------------------------

const dependences = region => details.depends[data.regions.indexOf(region)].slice(0, innerWidth < 600 ? 2 : 4); // panels
const axisName = (letter, at) => at ? `${letter}${at + 1}` : letter;

function dependenceTraces(region, found) {
  return found.flatMap((one, at) => {
    const options = region.space.find(parameter => parameter.name === one.name).options;
    const common = {xaxis: axisName("x", at), showlegend: false, x: options ? [...one.values.keys()] : one.values};
    const text = one.values.map((value, place) => inert(`${shortened(one.name, 40)} ${shortened(short(value), 40)}: ${short(one.mean[place])} (${short(one.low[place])} to ${short(one.high[place])})`));
    const mean = {...common, y: one.mean, text, hovertemplate: "%{text}<extra></extra>", marker: {color: colour("blue"), size: 6}, line: {color: colour("blue"), width: 2}};
    const gaps = (ends, sign) => ends.map((end, place) => sign * (end - one.mean[place]));
    if (options) return [{...mean, mode: "markers", error_y: {type: "data", symmetric: false, array: gaps(one.high, 1), arrayminus: gaps(one.low, -1), color: colour("blue"), thickness: 1, width: 3}}];
    const edge = {...common, mode: "lines", line: {width: 0}, hoverinfo: "skip"};
    return [{...edge, y: one.low}, {...edge, y: one.high, fill: "tonexty", fillcolor: mixed(colour("paper"), colour("blue"), 0.2)}, {...mean, mode: "lines+markers"}];
  });
}

function dependenceLayout(region, found) {
  const layout = {height: 240, margin: {l: 72, r: 12, t: 12, b: 44, autoexpand: false}, yaxis: {title: {text: inert(region.metric)}}}, share = 1 / found.length, gap = 0.04;
  found.forEach((one, at) => {
    const parameter = region.space.find(other => other.name === one.name), every = Math.ceil(one.values.length / 4);
    const labels = {tickvals: [...one.values.keys()].filter(place => place % every === 0), ticktext: one.values.filter((_, place) => place % every === 0).map(value => inert(shortened(short(value), 10))), range: [-0.5, one.values.length - 0.5]};
    layout[`xaxis${at ? at + 1 : ""}`] = {domain: [at * share + (at ? gap / 2 : 0), (at + 1) * share - gap / 2], title: {text: inert(shortened(one.name, 24))}, fixedrange: true, nticks: 4, exponentformat: "none",
      gridcolor: colour("grid"), linecolor: colour("line"), zeroline: false, ticks: "outside", tickcolor: colour("line"), ...(parameter.options ? labels : {type: parameter.log ? "log" : "linear"})};
  });
  return layout;
}
