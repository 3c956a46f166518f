// A table that sorts by its headings. A column: {title, get(row), show(row)?, number?, long?, node(row)?, more?}; `get` is
// what is sorted by and what the CSV holds, `show` the text in the cell, `node` an element in its place; those with `more`
// are shown when all are asked for, those with `screen` are not printed. Of many rows only those in sight are in the document, all of one height.

const MANY_ROWS = 120; // from here on
const ROW = 29; // pixels of each then
const ABOVE = 20; // rows kept above and below those in sight

function makeTable(place, {name, title, columns, rows, picked = () => false, sort = null, wide = true, onSort = () => {}}) {
  let listed = [], from = -1, until = -1, shown = [], paper = false;
  const body = element("tbody"), table = element("table"), groups = element("colgroup"), head = element("tr");
  table.append(element("caption", {className: "unseen", textContent: title}), groups, element("thead", {}, head), body);
  const scroll = element("div", {className: "scroll", tabIndex: 0, role: "region", ariaLabel: title, onscroll: () => slice()}, table);
  const count = element("span", {className: "quiet", role: "status"});
  const toCsv = () => [columns.map(column => column.title), ...sorted().map(row => columns.map(column => column.get(row)))];
  place.replaceChildren(scroll, element("div", {className: "below"}, count, csvButton(name, toCsv)));

  function turn(column) {
    const first = column.number ? "descending" : "ascending", other = first === "ascending" ? "descending" : "ascending";
    sort = sort?.title === column.title && sort.way === first ? {title: column.title, way: other} : {title: column.title, way: first};
    fill();
    onSort(sort);
    head.children[shown.indexOf(column)].querySelector("button").focus();
  }

  function sorted() {
    const column = sort && columns.find(one => one.title === sort.title);
    if (!column) return rows;
    const sign = sort.way === "ascending" ? 1 : -1, absent = value => value === null || value === undefined || value === "";
    return rows.map(row => [column.by ? column.by(row) : column.get(row), row]).sort(([one], [other]) => {
      if (absent(one) || absent(other)) return absent(one) - absent(other);
      return sign * (isNumber(one) && isNumber(other) ? one - other : String(one).localeCompare(String(other), "en", {numeric: true}));
    }).map(([, row]) => row);
  }

  const classOf = column => [column.number ? "number" : column.long ? "long" : "", column.screen ? "screen" : ""].join(" ").trim();
  const textOf = (column, row) => String((column.show ?? column.get)(row) ?? "");

  function cell(column, row, at) {
    const made = element(at ? "td" : "th", {className: classOf(column)});
    if (!at) made.scope = "row";
    if (column.node) made.append(column.node(row));
    else made.textContent = textOf(column, row);
    if (isLong() && !column.number) made.title = textOf(column, row);
    return made;
  }

  const isLong = () => listed.length > MANY_ROWS && !paper;
  const line = (row, at) => {
    const made = element("tr", {}, ...shown.map((column, place) => cell(column, row, place)));
    if (isLong()) made.ariaRowIndex = String(at + 2);
    mark(made, row);
    return made;
  };
  const space = count => element("tr", {className: "space", ariaHidden: "true"}, element("td", {colSpan: shown.length, style: `height:${count * ROW}px`}));

  function fill() {
    shown = columns.filter(column => wide || !column.more);
    listed = sorted();
    head.replaceChildren(...shown.map(column => {
      const made = element("th", {scope: "col", className: classOf(column)}, element("button", {type: "button", textContent: column.title, onclick: () => turn(column)}));
      if (sort?.title === column.title) made.setAttribute("aria-sort", sort.way);
      return made;
    }));
    table.classList.toggle("long", isLong());
    table.style.width = "";
    groups.replaceChildren();
    if (isLong()) { // as wide as the widest of all rows: columns must not move while one scrolls
      const chars = shown.map(column => Math.max(Math.min(column.title.length, 11) + 2, Math.min(column.long ? 44 : column.number ? 40 : 24, listed.reduce((most, row) => Math.max(most, textOf(column, row).length), 0)) + 1));
      groups.append(...chars.map(width => element("col", {style: `width:${width}ch`})));
      table.style.width = `max(100%, ${chars.reduce((all, width) => all + width + 1.6, 0)}ch)`;
      table.ariaRowCount = String(listed.length + 1);
    } else table.removeAttribute("aria-rowcount");
    from = until = -1;
    slice();
    count.textContent = plural(listed.length, "row");
  }

  // What is in sight: rows that are there already stay, with the keyboard's focus.
  function slice() {
    if (!isLong()) {
      if (from < 0) body.replaceChildren(...listed.map(line));
      from = 0;
      return;
    }
    const first = Math.max(0, Math.floor(scroll.scrollTop / ROW) - ABOVE), last = Math.min(listed.length, first + Math.ceil((scroll.clientHeight || 600) / ROW) + 2 * ABOVE);
    if (first === from && last === until) return;
    const focused = body.contains(document.activeElement) ? document.activeElement.closest("tr") : null, at = focused ? Number(focused.ariaRowIndex) - 2 : -1;
    from = first;
    until = last;
    body.replaceChildren(...(first ? [space(first)] : []), ...listed.slice(first, last).map((row, place) => first + place === at ? focused : line(row, first + place)), ...(last < listed.length ? [space(listed.length - last)] : []));
    if (focused?.isConnected) focused.querySelector("button")?.focus({preventScroll: true});
    else if (focused) scroll.focus({preventScroll: true});
  }

  function mark(made, row) {
    const found = picked(row);
    made.classList.toggle("picked", found);
    if (found) made.setAttribute("aria-current", "true");
    else made.removeAttribute("aria-current");
  }

  fill();
  return {
    show(some) { rows = some; scroll.scrollTop = 0; fill(); },
    widen(all) { wide = all; fill(); },
    mark() {
      const lines = [...body.children].filter(one => !one.classList.contains("space"));
      lines.forEach((made, at) => mark(made, listed[(isLong() ? from : 0) + at]));
    },
    paper(on) { if (listed.length > MANY_ROWS) { paper = on; fill(); } },
    scroll,
  };
}
