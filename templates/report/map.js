// All regions at a glance: a tile each, with its gain and interval on one scale; from many regions on a sign each, and
// above them all gains by rank in one picture. In groups, those that a person should look at first.

const MOST_TILES = 60; // regions with figures, up to which each has a tile of its own
const ORDER = ["failed", "worse", "better", "stayed", "best trial", "unfinished", "no figures"];
const map = {against: "floor", order: "gain", cells: [], regions: []};

const mapRegions = () => { const own = data.regions.filter(region => !region.whole); return own.length ? own : data.regions; };
const ownFigure = region => isNumber(region.test[region.metric]) ? `${region.metric} ${digits(region.test[region.metric], 4)}` : "";
const regionsOfPrograms = regions => regions.every(region => region.program);
const wordsOf = region => {
  const gain = gainOf(region, map.against), reason = region.verdict === "failed" ? region.reason : "";
  return [region.name, VERDICTS[groupOf(region, map.against)].title.toLowerCase(), gain ? `${sayGain(gain)} over ${rivalOf(region, map.against)}` : "",
    region.verdict === "best trial" ? ownFigure(region) : "", region.customers ? plural(region.customers, asked()) : "", reason].filter(Boolean).join(", ");
};

// The scale: as wide as the intervals of regions with customers enough, or else as the gains; wider ones get an arrow.
function mapLimit(regions) {
  const gains = regions.map(region => [gainOf(region, map.against), region.customers]).filter(([gain]) => gain);
  const sure = gains.filter(([gain, customers]) => customers >= 10 && isNumber(gain.low)).flatMap(([gain]) => [gain.low, gain.high]);
  const seen = (sure.length ? sure : gains.map(([gain]) => gain.value)).map(Math.abs).sort((one, other) => one - other);
  return (seen[Math.floor(seen.length * 0.98)] || seen.at(-1) || 0.1) * 1.08 || 0.1;
}

const sorters = {
  gain: (one, other) => (gainOf(other, map.against)?.value ?? -Infinity) - (gainOf(one, map.against)?.value ?? -Infinity) || other.customers - one.customers,
  customers: (one, other) => other.customers - one.customers,
  name: (one, other) => one.name.localeCompare(other.name, "en", {numeric: true}),
};

function whisker(gain, limit) {
  const place = value => 50 + 50 * Math.max(-1, Math.min(1, value / limit)), picture = drawn("svg", {viewBox: "0 0 100 12", preserveAspectRatio: "none", "aria-hidden": "true", class: "whisker"});
  picture.append(drawn("path", {d: "M50 0V12", class: "zero"}));
  if (isNumber(gain.low) && isNumber(gain.high)) picture.append(drawn("path", {d: `M${place(gain.low)} 6H${place(gain.high)}`, class: "range"}));
  picture.append(drawn("path", {d: `M${place(gain.value)} 1V11`, class: "middle"}));
  return element("span", {className: "bar"}, ...(Math.min(gain.low ?? gain.value, gain.value) < -limit ? [element("span", {className: "beyond left", textContent: "◂"})] : []), picture,
    ...(Math.max(gain.high ?? gain.value, gain.value) > limit ? [element("span", {className: "beyond right", textContent: "▸"})] : []));
}

function mapTile(region, group, limit) {
  const gain = gainOf(region, map.against), name = element("span", {className: "name", textContent: region.name});
  const inside = [element("span", {className: "sign", textContent: VERDICTS[group].sign, ariaHidden: "true"}), name];
  if (gain) inside.push(element("span", {className: "figures"}, element("b", {textContent: signed(gain.value)}), element("span", {className: "of", textContent: plural(region.customers, asked())})), whisker(gain, limit));
  else if (group === "best trial") inside.push(element("span", {className: "of", textContent: ownFigure(region)}));
  else if (group === "failed") inside.push(element("span", {className: "of why", textContent: shortened(region.reason, 90)}));
  return element("button", {type: "button", className: `cell ${gain || group === "failed" ? "tile" : "chip"}`}, ...inside);
}

function mapCell(region, group) {
  const cell = element("button", {type: "button", className: "cell"});
  cell.dataset.sign = VERDICTS[group].sign;
  return cell;
}

function fillMap() {
  map.against = byId("against").value;
  map.order = byId("order").value;
  const all = mapRegions(), groups = new Map(ORDER.map(group => [group, []]));
  for (const region of all) groups.get(groupOf(region, map.against)).push(region);
  const limit = mapLimit(all), many = all.filter(region => gainOf(region, map.against)).length > MOST_TILES || all.length > 4 * MOST_TILES;
  map.cells = [];
  map.regions = [];
  byId("groups").className = many ? "many" : "";
  byId("groups").replaceChildren(...ORDER.filter(group => groups.get(group).length).map(group => {
    const some = groups.get(group).sort(sorters[map.order]);
    const cells = some.map(region => {
      const cell = many ? mapCell(region, group) : mapTile(region, group, limit);
      cell.classList.add(`is-${group.replace(" ", "-")}`);
      if (many) cell.setAttribute("aria-label", wordsOf(region)); // a tile says it itself
      cell.title = wordsOf(region);
      cell.dataset.at = map.cells.length;
      cell.tabIndex = -1;
      map.cells.push(cell);
      map.regions.push(region);
      return cell;
    });
    const title = element("h3", {}, element("span", {className: `sign is-${group.replace(" ", "-")}`, textContent: VERDICTS[group].sign, ariaHidden: "true"}), ` ${VERDICTS[group].title} `, element("span", {className: "quiet", textContent: some.length.toLocaleString("en")}));
    const list = element("div", {className: "cells"}, ...cells);
    list.setAttribute("role", "group");
    list.setAttribute("aria-label", `${VERDICTS[group].title}, ${plural(some.length, "region")}; arrow keys go from one to the next, Enter opens it`);
    return element("div", {className: "group"}, title, list);
  }));
  if (map.cells.length) map.cells[0].tabIndex = 0;
  byId("readout").hidden = !many;
  fillScale(all, limit, many);
  markMap();
}

function fillScale(all, limit, many) {
  const known = all.filter(region => gainOf(region, map.against)), place = byId("scale");
  if (!known.length) {
    place.replaceChildren(element("p", {className: "quiet", textContent: regionsOfPrograms(all) ? "Programs of yours have trained: they are held against nothing of ours." : map.against === "incumbent" ? "No recipe was in office before whose figures are known." : "No region has figures of its test yet."}));
    return;
  }
  const text = `${data.metric} gained over ${AGAINST[map.against]} by the same ${asked()}s of the test window; the line is its 95 % interval.`;
  if (many) place.replaceChildren(byRank(known.sort(sorters.gain), limit), element("p", {className: "quiet", textContent: `${text} Each region by its gain, best first; below, a sign each.`}));
  else place.replaceChildren(element("p", {className: "quiet", textContent: `${text} Each line goes from ${signed(-limit, 3)} to ${signed(limit, 3)}, the mark in the middle is 0; ◂ ▸: wider.`}));
}

// Every gain with its interval, best first, in five nodes whatever their number.
function byRank(regions, limit) {
  const wide = 1000, high = 180, left = 52, x = at => left + (wide - left - 8) * (at + 0.5) / regions.length, y = value => high / 2 - (high / 2 - 14) * Math.max(-1, Math.min(1, value / limit));
  const paths = {better: "", worse: "", stayed: "", range: ""}, tick = Math.min(5, (wide - left) / regions.length * 0.9);
  regions.forEach((region, at) => {
    const gain = gainOf(region, map.against);
    if (isNumber(gain.low)) paths.range += `M${x(at).toFixed(1)} ${y(gain.low).toFixed(1)}V${y(gain.high).toFixed(1)}`;
    paths[groupOf(region, map.against)] += `M${(x(at) - tick / 2).toFixed(1)} ${y(gain.value).toFixed(1)}h${tick.toFixed(1)}`;
  });
  const step = niceStep(limit), ticks = [-2, -1, 0, 1, 2].map(times => times * step).filter(value => Math.abs(value) <= limit * 0.97);
  const picture = drawn("svg", {viewBox: `0 0 ${wide} ${high}`, class: "ranks", role: "img", "aria-label": `Gain of ${regions.length} regions by rank, from ${sayGain(gainOf(regions[0], map.against))} to ${sayGain(gainOf(regions.at(-1), map.against))}; the table has every figure`},
    drawn("path", {d: ticks.map(value => `M${left} ${y(value)}H${wide}`).join(""), class: "grid"}), drawn("path", {d: `M${left} ${y(0)}H${wide}`, class: "zero"}), drawn("path", {d: paths.range, class: "range"}),
    ...["stayed", "worse", "better"].map(group => drawn("path", {d: paths[group], class: `gain is-${group}`})),
    ...ticks.map(value => { const label = drawn("text", {x: left - 6, y: y(value) + 4, class: "tick"}); label.textContent = value ? signed(value, Math.max(0, Math.ceil(-Math.log10(step)))) : "0"; return label; }));
  const at = event => { const box = picture.getBoundingClientRect(); return regions[Math.max(0, Math.min(regions.length - 1, Math.floor(((event.clientX - box.left) / box.width * wide - left) / (wide - left - 8) * regions.length)))]; };
  picture.addEventListener("mousemove", event => readOut(at(event)));
  picture.addEventListener("click", event => openRegion(at(event)));
  return picture;
}

function niceStep(limit) {
  const power = 10 ** Math.floor(Math.log10(limit / 1.5));
  return [5, 2, 1].map(times => times * power).find(step => step <= limit / 1.5) ?? power;
}

const readOut = region => { byId("readout").textContent = region ? wordsOf(region) : ""; };

function markMap() {
  map.cells.forEach((cell, at) => {
    if (map.regions[at] === picked.region) cell.setAttribute("aria-current", "true");
    else cell.removeAttribute("aria-current");
  });
}

// The cell above or below: of those in the next line of cells, the nearest.
function beside(at, way) {
  const from = map.cells[at].getBoundingClientRect(), boxes = map.cells.map(cell => cell.getBoundingClientRect());
  const line = boxes.map((box, place) => [way * (box.top - from.top), place]).filter(([below]) => below > 4);
  if (!line.length) return at;
  const nearest = Math.min(...line.map(([below]) => below));
  return line.filter(([below]) => below < nearest + 4).map(([, place]) => place)
    .reduce((best, place) => Math.abs(boxes[place].left - from.left) < Math.abs(boxes[best].left - from.left) ? place : best);
}

function goToCell(at, how = {}) {
  map.cells.forEach(cell => { cell.tabIndex = -1; });
  map.cells[at].tabIndex = 0;
  map.cells[at].focus(how);
}

function startMap() { // once; fillMap() fills it
  const known = Object.keys(AGAINST).filter(against => data.regions.some(region => region.gains[against]));
  byId("against").parentElement.hidden = !known.length;
  byId("against").replaceChildren(...(known.length ? known : ["floor"]).map(name => new Option(AGAINST[name], name)));
  byId("order").replaceChildren(new Option("gain", "gain"), new Option(`${asked()}s`, "customers"), new Option("name", "name"));
  byId("against").onchange = byId("order").onchange = fillMap;
  const place = byId("groups"), cellOf = event => event.target.closest(".cell");
  place.onclick = event => { const cell = cellOf(event); if (cell) openRegion(map.regions[cell.dataset.at]); };
  const tellOf = event => { const cell = cellOf(event); if (cell) readOut(map.regions[cell.dataset.at]); };
  place.addEventListener("mouseover", tellOf);
  place.addEventListener("focusin", tellOf);
  place.onkeydown = event => {
    const cell = cellOf(event), at = cell ? Number(cell.dataset.at) : -1;
    const to = {ArrowRight: () => Math.min(at + 1, map.cells.length - 1), ArrowLeft: () => Math.max(at - 1, 0), ArrowDown: () => beside(at, 1), ArrowUp: () => beside(at, -1), Home: () => 0, End: () => map.cells.length - 1}[event.key];
    if (!cell || !to) return;
    event.preventDefault();
    goToCell(to());
  };
}
