// Reproduced tables: the printed numbers beside ours

function reproduced() {
  const several = FACTS.tables.length > 1;
  let kept = repaint.length;
  const [place, show] = redrawn(() => {
    const table = FACTS.tables[VIEW.get("table") ?? 0];
    repaint.length = kept;
    return [table.note ? element("p", { class: "note" }, table.note) : null, cards(table.findings),
      ...[numbersOf, figureOf, claimsOf, differencesOf, tableMade].map(part => part(table))];
  });
  const choice = several ? element("div", { class: "choose", id: "tables" }, dropdown("table", "Table", FACTS.tables.map((table, n) => [n, table.title]), () => { show(); navigate(); })) : null;
  show();
  return element("div", {}, choice, place);
}

const formatOf = measure => (value, gap) => value == null ? "–" : (measure.factor * value).toFixed(measure.factor === 100 ? gap ? digitsFor(100 * gap) : 2 : measure.factor === 1 ? 1 : 1);
const shortStream = stream => stream.replace(/-mnist$/, "");

function numbersOf(table) {
  if (!table.measures.length || !table.entries.length) return null;
  const streams = table.streams.filter(stream => table.entries.some(e => e.stream === stream));
  const [place, again] = redrawn(() => {
    const measure = table.measures.find(m => m.name === VIEW.get("table measure")) ?? table.measures[0];
    const chosen = VIEW.get("table stream"), shown = chosen === "all" ? streams : [chosen];
    return [grid(table, measure, shown), ...shown.map(stream => besides(table, measure, stream, shown.length > 1))];
  });
  const few = streams.length * (1 + table.columns.length) <= 9, names = streams.map(s => [s, shortStream(s)]);
  const tools = element("div", { class: "tools bar" }, segmented("table measure", table.measures.map(m => [m.name, m.title]), again),
    segmented("table stream", streams.length > 1 && few ? [["all", "all streams"], ...names] : names, again));
  again();
  return section("table", "Table", "The table", `Ours, mean ± standard deviation over seeds, beside the numbers of ${table.printed}; a difference is ours minus theirs. A dash where nothing was run, or nothing was printed.`, tools, place);
}

const entryOf = (table, row, column, stream) => table.entries.find(e => e.row === row && e.column === column && e.stream === stream);

function grid(table, measure, streams) {
  const printed = (row, stream) => table.paper[row]?.[stream]?.[measure.name], format = formatOf(measure);
  const columns = [{ title: "row", words: true, value: row => table.rows.indexOf(row), show: row => row }];
  for (const stream of streams) {
    const run = table.columns.filter(column => table.rows.some(row => { const e = entryOf(table, row, column, stream); return e?.measures[measure.name] || e?.failed; }));
    const where = streams.length > 1 ? `${shortStream(stream)}: ` : "";
    if (table.rows.some(row => printed(row, stream) != null))
      columns.push({ title: `${where}${table.printed}`, value: row => printed(row, stream), show: row => printed(row, stream) == null ? element("span", { class: "none" }, "–") : element("em", {}, String(printed(row, stream))) });
    for (const column of run) columns.push({
      title: table.columns.length > 1 ? `${where}${column}` : streams.length > 1 ? shortStream(stream) : "ours", best: measure.best,
      value: row => entryOf(table, row, column, stream)?.measures[measure.name]?.mean,
      show: row => placeOf(entryOf(table, row, column, stream), measure, printed(row, stream), format) });
  }
  return sortable("reproduced", columns, table.rows.filter(row => columns.slice(1).some(c => c.value(row) != null) || table.entries.some(e => e.row === row && streams.includes(e.stream) && e.failed)));
}

// One place: our mean and spread, and how far that is from the printed number.
function placeOf(held, measure, paper, format) {
  const found = held?.measures[measure.name];
  if (!found) return element("span", { class: "none" }, held?.failed ? "diverged" : "–");
  const difference = paper == null ? null : measure.factor * found.mean - paper;
  return element("span", { title: `${held.seeds.length} ${held.seeds.length === 1 ? "seed" : "seeds"}, commit ${held.commits.join(", ")}` }, format(found.mean),
    held.seeds.length > 1 ? element("small", {}, ` ± ${format(found.spread)}`) : null,
    difference == null ? null : element("small", { class: (difference >= 0) === (measure.best === "max") ? "up" : "down" }, ` ${signed(difference, 1)}`));
}

// Ours and the printed number of every row: of our columns the best.
function besides(table, measure, stream, named) {
  const better = (a, b) => (measure.best === "max") === (a > b);
  const rows = table.rows.map(row => {
    const best = table.entries.filter(e => e.row === row && e.stream === stream && e.measures[measure.name])
      .reduce((found, e) => !found || better(e.measures[measure.name].mean, found.measures[measure.name].mean) ? e : found, null);
    const printed = table.paper[row]?.[stream]?.[measure.name];
    if (!best && printed == null) return null;
    return { name: row, colour: FACTS.palette[0], ...(best?.measures[measure.name] ?? { mean: null }), beside: printed == null ? null : printed / measure.factor };
  }).filter(Boolean).sort((a, b) => (better(a.mean ?? a.beside, b.mean ?? b.beside) ? -1 : 1));
  if (!rows.some(row => row.mean != null)) return null;
  return figure(named ? shortStream(stream) : "Side by side", dots(rows, { title: measure.title, format: formatOf(measure), best: rows.find(row => row.mean != null).name, besideName: table.printed }),
    `Dots are ours, ${table.columns.length > 1 ? "of the best column of a row" : "with one standard deviation"}; diamonds are the numbers of ${table.printed}.`);
}

function figureOf(table) {
  if (!table.figure) return null;
  return section("figure", "Figure", "The figure", "", element("img", { class: "sheet", src: table.figure, alt: table.title }));
}

function claimsOf(table) {
  if (!table.claims.length) return null;
  const moods = { holds: "good", "does not hold": "bad", "not measured": "" };
  const columns = [
    { title: "what is said", words: true, value: c => c.says, show: c => element("span", {}, c.says, c.because ? element("small", {}, ` ${c.because}`) : null) },
    { title: "theirs", words: true, value: c => c.paper, show: c => c.paper === "-" ? "–" : c.paper },
    { title: "wanted", words: true, value: c => c.wanted, show: c => c.wanted || "–" },
    { title: "ours", words: true, value: c => c.ours, show: c => c.ours === "-" ? "–" : c.ours },
    { title: "", words: true, value: c => c.verdict, show: c => element("span", { class: `chip ${moods[c.verdict]}` }, c.verdict) },
  ];
  return section("claims", "Claims", "Claims and targets", "Sentences of the paper, and targets of our own, that this table decides.", element("div", { class: "sentences" }, sortable("claims", columns, table.claims)));
}

function differencesOf(table) {
  if (!table.differences.length && !table.failed.length) return null;
  return section("differences", "Differences", "What is done differently", "Read the numbers with these in mind.", element("ul", { class: "lines" }, ...[...table.differences, ...table.failed].map(line => element("li", {}, line))));
}

function tableMade(table) {
  const commits = [...new Set(table.entries.flatMap(e => e.commits))];
  return section("made", "How made", "How it was made", `Scale ${table.scale}. Commits ${commits.join(", ") || "unknown"}.`, table.command ? copyable(table.command) : null, folded("Versions and machine", plain(table.environment)));
}
