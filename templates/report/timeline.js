// Every slot's time as bars on a canvas, which lies as one picture in a Plotly plot: that has the axes and the zoom.

const PHASES = [ // by number, as reporttimeline.py has them; from and to are parts of a row's height
  {name: "training", shade: "blue", from: 0.1, to: 0.9},
  {name: "transfer in", shade: "green", from: 0.5, to: 0.9},
  {name: "transfer out", shade: "sky", from: 0.1, to: 0.5},
  {name: "trained and lost", shade: "red", from: 0.1, to: 0.9, hatch: true},
  {name: "idle between", shade: "grey", from: 0.45, to: 0.55},
  {name: "held", shade: "purple", from: 0.1, to: 0.9, dots: true},
];
const MOST_PIXELS = 8192; // of the picture's height: browsers show nothing of one that is too large
const UNITS = [["seconds", 1, 600], ["minutes", 60, 36000], ["hours", 3600, 864000], ["days", 86400, Infinity]];

function paint(context, phase, x, y, width, height) {
  const {from, to, shade, hatch, dots} = PHASES[phase];
  const top = y + from * height, tall = (to - from) * height;
  context.fillStyle = colour(shade);
  context.fillRect(x, top, Math.max(width, 1), tall);
  if (!hatch && !dots || width < 4) return;
  context.save();
  context.beginPath();
  context.rect(x, top, width, tall);
  context.clip();
  context.strokeStyle = context.fillStyle = colour("paper");
  context.lineWidth = 1.5;
  context.beginPath();
  for (let at = x - tall; at < x + width; at += 5) {
    if (hatch) { context.moveTo(at, top + tall); context.lineTo(at + tall, top); }
    else context.rect(at, top + tall / 2 - 1, 2, 2);
  }
  if (hatch) context.stroke(); else context.fill();
  context.restore();
}

function slotTimeline(figure, time, describe, rows) {
  const end = time.from.reduce((last, from, at) => Math.max(last, from + time.seconds[at]), 1);
  const [unit, size] = UNITS.find(([, , most]) => end < most);
  const count = time.rows.length, tall = Math.min(Math.max(640 / count, 5), 20), every = Math.ceil(14 / tall);
  const readout = element("p", {className: "readout quiet", role: "status"});
  const draw = frame(figure, "What each slot did", "timeline", rows);
  const legend = element("ul", {className: "legend"});
  figure.querySelector(".plot").before(legend);
  figure.querySelector(".plot").after(readout);
  const label = row => inert(shortened(row, innerWidth < 600 ? 12 : 32)), longest = () => Math.max(...time.rows.map(row => Math.min(row.length, innerWidth < 600 ? 12 : 32)));
  const place = figure.querySelector(".plot"), margin = {l: 0, r: 12, t: 28, b: 44, autoexpand: false};
  const full = [-0.01 * end / size, 1.01 * end / size];
  let range = full, plot, at = -1, painting = false;

  function picture() {
    const dense = devicePixelRatio || 1, width = place.clientWidth - margin.l - margin.r;
    const canvas = element("canvas", {width: Math.max(width * dense, 1), height: Math.min(count * tall * dense, MOST_PIXELS)});
    const context = canvas.getContext("2d"), [low, high] = range.map(value => value * size);
    const across = canvas.width / (high - low), down = canvas.height / count;
    time.from.forEach((from, index) => {
      const x = (from - low) * across, width = time.seconds[index] * across;
      if (x + width >= 0 && x <= canvas.width) paint(context, time.phase[index], Math.max(x, -50), time.row[index] * down, Math.min(x + width, canvas.width + 50) - Math.max(x, -50), down);
    });
    return [{source: canvas.toDataURL(), xref: "x", yref: "y", x: range[0], y: -0.5, sizex: range[1] - range[0], sizey: count, sizing: "stretch", layer: "above"}];
  }

  function again() {
    painting = true;
    Promise.resolve(Plotly.relayout(plot, {images: picture()})).finally(() => { painting = false; });
  }

  function show() {
    const used = [...new Set(time.phase)].sort();
    legend.replaceChildren(...used.map(phase => {
      const sample = element("canvas", {width: 28, height: 14});
      paint(sample.getContext("2d"), phase, 0, 0, 28, 14);
      return element("li", {}, sample, PHASES[phase].name);
    }));
    const first = !plot;
    margin.l = 14 + 5.8 * longest();
    plot = draw([{x: [full[0]], y: [0], mode: "markers", marker: {opacity: 0}, hoverinfo: "skip", showlegend: false}], {
      height: margin.t + count * tall + margin.b, margin, images: picture(),
      xaxis: {title: {text: `${unit} since ${moment(time.start)}`}, range},
      yaxis: {range: [count - 0.5, -0.5], showgrid: false, tickfont: {size: 10}, fixedrange: true,
        tickvals: time.rows.map((_, row) => row).filter(row => row % every === 0), ticktext: time.rows.filter((_, row) => row % every === 0).map(label)},
    }, `${count} rows, ${time.from.length} stretches. Drag to zoom, double-click to see all; with the arrow keys from stretch to stretch.`);
    if (first) listen();
  }

  function tell(index) {
    at = index;
    readout.textContent = index < 0 ? "" : `${time.rows[time.row[index]]}: ${PHASES[time.phase[index]].name}, ${describe(index)}`;
  }

  function listen() {
    plot.tabIndex = 0;
    plot.setAttribute("role", "application");
    plot.on("plotly_relayout", () => {
      if (painting) return;
      range = plot.layout.xaxis.range.map(Number);
      again();
    });
    plot.addEventListener("mousemove", event => {
      const area = plot.querySelector(".nsewdrag").getBoundingClientRect();
      const seconds = size * (range[0] + (event.clientX - area.left) / area.width * (range[1] - range[0]));
      const row = Math.floor((event.clientY - area.top) / area.height * count);
      tell(time.from.findIndex((from, index) => time.row[index] === row && from <= seconds && seconds <= from + time.seconds[index]));
    });
    plot.addEventListener("keydown", event => {
      const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
      const turn = {ArrowDown: 1, ArrowUp: -1}[event.key];
      if (!step && !turn) return;
      event.preventDefault();
      const row = at < 0 ? -1 : time.row[at];
      const next = at < 0 ? 0 : step ? at + step : turn > 0 ? time.row.findIndex(other => other > row) : time.row.findIndex(other => other === row - 1);
      if (next >= 0 && next < time.from.length) tell(next);
    });
  }

  return show;
}
