// How regions did, in shapes, words and colours that say the same, and the headline.

const VERDICTS = {
  better: {sign: "▲", title: "Surely better"}, worse: {sign: "▼", title: "Surely worse"}, stayed: {sign: "≈", title: "Too close to tell"},
  "best trial": {sign: "●", title: "With the best of their trials"},
  "no figures": {sign: "○", title: "No figures"}, failed: {sign: "✗", title: "Failed"}, unfinished: {sign: "…", title: "Not finished"},
};
const AGAINST = {floor: "the floor", simple: "the best simple method", incumbent: "what served before"}; // of all regions
const rivalOf = (region, against) => against === "floor" ? region.floor_name : AGAINST[against];
const SHOWN_NEEDS = 3; // at once: the headline has to fit a small screen

// The gain over `against` as {value, low, high}, or null.
function gainOf(region, against) {
  const found = region.gains[against];
  return found ? {value: found[0], low: found[1], high: found[2]} : null;
}

// What a region's gain says: the group that it stands in.
function groupOf(region, against) {
  if (region.verdict === "failed" || region.verdict === "unfinished") return region.verdict;
  const gain = gainOf(region, against);
  if (!gain) return region.verdict === "best trial" ? region.verdict : "no figures";
  return isNumber(gain.low) && gain.low > 0 ? "better" : isNumber(gain.high) && gain.high < 0 ? "worse" : "stayed";
}

const ends = gain => isNumber(gain?.low) && isNumber(gain?.high) && (gain.low || gain.high) ? `${signed(gain.low)} to ${signed(gain.high)}` : "";
const sayGain = gain => gain ? `${signed(gain.value)}${ends(gain) ? ` (95 %: ${ends(gain)})` : ""}` : "not measured";
const outcome = region => `${VERDICTS[region.verdict].sign} ${region.verdict === "stayed" ? region.against === "incumbent" ? "stayed" : "too close to tell" : region.verdict}`;

function fillHead() {
  document.title = `${data.study} - regiondag report`;
  byId("study").textContent = data.study;
  byId("origin").textContent = `${data.run.split("/").pop()}, tuned by ${data.metric}, made ${moment(data.made)}`;
  byId("origin").title = data.run;
}

const unpriced = () => data.regions.filter(region => region.cost === null).length;
function costs() {
  if (!data.currency) return data.gpu_hours >= 0.1 ? `${digits(data.gpu_hours, 1)} GPU hours` : "";
  if (data.cost === null) return "cost unknown";
  return `${unpriced() ? "≥ " : ""}${data.cost.toLocaleString("en", {minimumFractionDigits: 2, maximumFractionDigits: 2})} ${data.currency}`;
}

function fillHeadline() {
  const {counts, main: most, sentences, needs, hours} = data.headline, total = counts.reduce((all, [, , count]) => all + count, 0);
  const tile = (name, value, {sign = "", kind = "", quiet = false} = {}) => element("div", {className: `tile ${kind} ${quiet ? "small" : ""}`},
    element("dt", {textContent: name}), element("dd", {}, ...(sign ? [element("span", {className: "sign", textContent: sign, ariaHidden: "true"}), " "] : []), value));
  const begun = counts.some(([kind, , count]) => count && kind !== "unfinished"), others = (begun ? counts.slice(most) : []).filter(([, , count]) => count);
  const main = begun ? counts.slice(0, most) : counts.slice(-1), sum = name => data.regions.reduce((all, region) => all + region.counts[name], 0);
  byId("counts").replaceChildren(
    ...main.map(([kind, word, count]) => tile(word, count.toLocaleString("en"), {sign: VERDICTS[kind].sign, kind: count ? `is-${kind.replace(" ", "-")}` : "is-none"})),
    ...others.map(([kind, word, count]) => tile(word, count.toLocaleString("en"), {sign: VERDICTS[kind].sign, kind: `is-${kind.replace(" ", "-")}`, quiet: kind !== "failed"})),
    tile(total === 1 ? "region" : "regions", total.toLocaleString("en"), {quiet: true}),
    ...(data.ended ? [] : [tile("trials settled", `${sum("run").toLocaleString("en")} of ${sum("planned").toLocaleString("en")}`, {quiet: true})]),
    tile("of training", hours, {quiet: true}), ...(costs() ? [tile(data.currency ? "cost" : "on slots", costs(), {quiet: true})] : []));
  byId("sentences").replaceChildren(...sentences.map(text => element("p", {textContent: text})));
  const line = ([text, names]) => element("li", {}, text, ...(names.length ? [": ", ...names.slice(0, 4).flatMap((name, at) => [...(at ? [", "] : []), regionLink(name)]),
    ...(names.length > 4 ? [` and ${(names.length - 4).toLocaleString("en")} more`] : [])] : []));
  const title = element("h3", {textContent: needs.length ? "Needs a person" : "Nothing needs a person"});
  const first = element("ul", {}, ...needs.slice(0, SHOWN_NEEDS).map(line)), rest = needs.slice(SHOWN_NEEDS);
  byId("needs").className = needs.length ? "some" : "";
  byId("needs").replaceChildren(title, ...(needs.length ? [first] : []), ...(rest.length ? [element("details", {id: "more-needs"}, element("summary", {textContent: `${rest.length} more`}), element("ul", {}, ...rest.map(line)))] : []));
}

function regionLink(name, region = data.regions.find(one => one.name === name)) {
  return region ? element("button", {type: "button", className: "link", textContent: name, onclick: () => openRegion(region)}) : name;
}
