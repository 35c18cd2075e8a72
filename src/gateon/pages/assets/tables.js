// Tables whose columns sort; a column is {title, about, value: row => number or text, show: row => text or element, best}

function sortable(name, columns, rows) {
  const body = element("tbody");
  const best = columns.map(c => {
    const values = c.best && rows.map(c.value).filter(v => v != null);
    return values?.length > 1 ? Math[c.best](...values) : NaN;
  });
  const fill = sorted => body.replaceChildren(...sorted.map(row => element("tr", {}, ...columns.map((c, n) =>
    element("td", { class: [c.value(row) === best[n] ? "best" : "", c.words ? "words" : ""].join(" ").trim() || undefined }, c.show(row))))));
  const sortBy = (n, up) => {
    heads.forEach((head, other) => head.setAttribute("aria-sort", other !== n ? "none" : up ? "ascending" : "descending"));
    const key = row => columns[n].value(row);
    fill([...rows].sort((a, b) => {
      const [one, other] = [key(a), key(b)];
      if (one == null || other == null) return (one == null) - (other == null); // what is unknown comes last
      return (one < other ? -1 : one > other ? 1 : 0) * (up ? 1 : -1);
    }));
  };
  const heads = columns.map((c, n) => {
    const sort = () => {
      const first = c.words || c.best === "min"; // the best, or the first of an alphabet, on top
      const sorted = head.getAttribute("aria-sort");
      const up = sorted === "none" ? first : sorted === "descending";
      VIEW.set(`sorted ${name}`, [n, up]);
      sortBy(n, up);
    };
    const head = element("th", { scope: "col", tabindex: 0, "aria-sort": "none", title: c.about, class: c.words ? "words" : undefined, onclick: sort,
      onkeydown: event => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); } } }, c.title);
    return head;
  });
  fill(rows);
  if (VIEW.has(`sorted ${name}`)) sortBy(...VIEW.get(`sorted ${name}`));
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
}

// Names and values, one line each; nested ones as JSON.
function plain(facts) {
  const told = value => typeof value === "object" && value !== null ? JSON.stringify(value) : String(value);
  const rows = Object.entries(facts).filter(([, value]) => value !== null && told(value) !== "[]");
  return element("table", { class: "plain" }, element("tbody", {}, ...rows.map(([name, value]) =>
    element("tr", {}, element("td", {}, name), element("td", {}, told(value))))));
}
