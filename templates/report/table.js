// A table that sorts by its headings. A column: {title, get(row), show(row)?, number?, long?, node(row)?}; `get` is what
// is sorted by and what the CSV holds, `show` the text in the cell, `node` an element in its place.

const MOST_ROWS = 500; // that are shown before somebody asks for more

function makeTable(place, {name, title, columns, rows, picked = () => false, sort = null}) {
  let all = false;
  let listed = []; // the rows that are shown
  const body = element("tbody");
  const heads = columns.map((column, index) => {
    const button = element("button", {type: "button", textContent: column.title, onclick: () => turn(index)});
    return element("th", {scope: "col", className: column.number ? "number" : ""}, button);
  });
  const table = element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body);
  const scroll = element("div", {className: "scroll", tabIndex: 0, role: "region", ariaLabel: title}, table);
  const count = element("span", {className: "quiet", role: "status"});
  const more = element("button", {type: "button", onclick: () => { all = true; fill(); }});
  const toCsv = () => [columns.map(column => column.title), ...sorted().map(row => columns.map(column => column.get(row)))];
  place.replaceChildren(scroll, element("div", {className: "below"}, count, more, csvButton(name, toCsv)));

  function turn(index) {
    const first = columns[index].number ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    sort = sort && sort.index === index && sort.way === first ? {index, way: other} : {index, way: first};
    fill();
  }

  function sorted() {
    if (!sort) return rows;
    const {get} = columns[sort.index], sign = sort.way === "ascending" ? 1 : -1;
    const absent = value => value === null || value === undefined || value === "";
    return [...rows].sort((left, right) => {
      const one = get(left), other = get(right);
      if (absent(one) || absent(other)) return absent(one) - absent(other);
      return sign * (isNumber(one) && isNumber(other) ? one - other : String(one).localeCompare(String(other), "en", {numeric: true}));
    });
  }

  function cell(column, row) {
    const made = element("td", {className: column.number ? "number" : column.long ? "long" : ""});
    if (column.node) made.append(column.node(row));
    else made.textContent = (column.show || column.get)(row) ?? "";
    return made;
  }

  function fill() {
    const found = sorted(), shown = all ? found : found.slice(0, MOST_ROWS);
    listed = shown;
    body.replaceChildren(...shown.map(row => element("tr", {}, ...columns.map(column => cell(column, row)))));
    mark();
    heads.forEach((head, index) => {
      if (sort && sort.index === index) head.setAttribute("aria-sort", sort.way);
      else head.removeAttribute("aria-sort");
    });
    count.textContent = `${rows.length} rows` + (shown.length < found.length ? `, the first ${shown.length} shown` : "");
    more.hidden = shown.length === found.length;
    more.textContent = `Show all ${found.length}`;
  }

  // In place: what has the keyboard's focus must stay.
  function mark() {
    listed.forEach((row, at) => {
      const found = picked(row), line = body.children[at];
      line.classList.toggle("picked", found);
      if (found) line.setAttribute("aria-current", "true");
      else line.removeAttribute("aria-current");
    });
  }

  fill();
  return {show(some) { rows = some; fill(); }, mark};
}
