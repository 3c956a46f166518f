// Small tools: unpacking, elements, figures as text, colours, CSV. Texts of the study reach the page through
// textContent and `inert` alone, so that none of them is ever read as HTML.

const byId = id => document.getElementById(id);

const parsed = new Promise(done => { // what stands behind this script is there then
  if (document.readyState !== "loading") done();
  else addEventListener("DOMContentLoaded", done);
});

async function unpacked(id) {
  const letters = atob(byId(id).textContent), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = letters.charCodeAt(at);
  byId(id).textContent = "";
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
}

const SVG = "http://www.w3.org/2000/svg";
function drawn(tag, attributes = {}, ...children) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

// Plotly reads tags and entities in its texts: after this it finds none.
const inert = text => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const isNumber = value => typeof value === "number";
const digits = (value, count) => value === null || value === undefined ? "" : value.toFixed(count);
const short = value => value === null || value === undefined ? "" : isNumber(value) && !Number.isInteger(value) ? String(Number(value.toPrecision(4))) : String(value);
const shortened = (text, most) => text.length > most ? text.slice(0, most - 1) + "…" : text;
const signed = (value, count = 4) => value === null || value === undefined ? "" : (Math.abs(value) < 0.5 * 10 ** -count ? "±" : value > 0 ? "+" : "−") + Math.abs(value).toFixed(count);
const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;
const asked = () => data.asked ?? "customer"; // what metrics are means over
const moment = seconds => new Date(seconds * 1000).toISOString().slice(0, 19).replace("T", " ") + " UTC";

function lasting(seconds) {
  if (seconds === null || seconds === undefined) return "";
  if (seconds < 120) return `${Number(seconds.toFixed(1))} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(1)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

const colours = new Map(); // of page.css, until light or dark changes
const colour = name => colours.get(name) ?? colours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim()).get(name);

// What a spreadsheet would take for a formula is made text; numbers stay numbers.
function field(value) {
  if (value === null || value === undefined) return "";
  if (isNumber(value)) return String(value);
  const text = String(value);
  return `"${(/^[=+\-@\t\r]/.test(text) ? "'" : "") + text.replaceAll('"', '""')}"`;
}

const csv = rows => rows.map(row => row.map(field).join(",") + "\r\n").join("");

function download(name, rows) {
  const url = URL.createObjectURL(new Blob([csv(rows)], {type: "text/csv"}));
  element("a", {href: url, download: `${name}.csv`}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// `rows` is called when the button is pressed: headings first.
function csvButton(name, rows) {
  return element("button", {type: "button", className: "csv", textContent: "CSV", title: `Download ${name}.csv`,
    onclick: () => download(name, rows())});
}
