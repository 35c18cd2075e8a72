// Methods side by side

function told(measure, found, spread = true) {
  if (!found) return "–";
  const pair = format => format(found.mean) + (spread && found.count > 1 ? ` ± ${format(found.spread)}` : "");
  if (measure.unit === "s") return pair(duration);
  if (measure.unit === "bytes") return bytes(found.mean);
  return pair(value => percent(value));
}

function mainNumber(measure, found) {
  if (!found) return element("span", { class: "none" }, "–");
  const [mean, spread] = told(measure, found).split(" ± ");
  return element("span", {}, mean, spread ? element("small", { class: "pm" }, ` ± ${spread}`) : null);
}

function comparison() {
  if (FACTS.methods.length < 2) return null;
  const measures = FACTS.measures.filter(m => FACTS.methods.some(row => row.measures[m.name]));
  const seeds = Math.max(...FACTS.methods.map(row => row.runs.length));
  const columns = [
    { title: "method", words: true, value: row => row.name, show: row => element("span", { class: "key", style: `--c: ${ink(row.colour)}` }, row.name) },
    ...measures.map(m => ({ title: m.title, about: m.about, best: m.best, value: row => row.measures[m.name]?.mean, show: row => mainNumber(m, row.measures[m.name]) })),
    { title: "seeds", value: row => row.runs.length, show: row => row.runs.length },
  ];
  const series = FACTS.methods.filter(row => row.curve.length).map(row => ({ name: row.name, colour: row.colour, dash: row.dash, points: row.curve.map(p => [p[0], p[1]]), band: row.curve.map(p => [p[0], p[1] - p[2], p[1] + p[2]]) }));
  const wide = FACTS.methods.length > 8 ? 420 : 340;
  const root = series.length ? chart(series, { x: "tasks learned", y: "mean accuracy over them, %", width: pageWidth(), height: wide, tell: v => `${percent(v)} %` }) : null;
  const spread = seeds > 1 ? ", mean ± standard deviation over seeds" : ", one seed each";
  return section("methods", "Methods", "Methods side by side", `Percent on ${FACTS.part} data${spread}. The best of each column stands out; click a column to sort, hover over its name to read what it is.`,
    sortable("methods", columns, FACTS.methods), methodDots(measures),
    root ? figure("As tasks are learned", element("div", {}, root, legend(series, root)), seeds > 1 ? "A band is one standard deviation over seeds. Click a name to hide its line." : "Click a name to hide its line.") : null);
}

function methodDots(measures) {
  const [place, again] = redrawn(() => {
    const measure = measures.find(m => m.name === VIEW.get("measure"));
    const least = measure.best === "min", known = FACTS.methods.filter(row => row.measures[measure.name]);
    const rows = known.map(row => ({ name: row.name, colour: row.colour, ...row.measures[measure.name] })).sort((a, b) => (b.mean - a.mean) * (least ? -1 : 1));
    const shares = measure.unit === "%" || measure.unit === "points";
    const format = (v, gap) => measure.unit === "bytes" ? bytes(Math.round(v)) : measure.unit === "s" ? duration(v) : percent(v, gap ? digitsFor(100 * gap) : 2);
    return dots(rows, { title: `${measure.title}${shares ? ", %" : ""}`, format, best: rows[0]?.name, low: shares ? undefined : 0 });
  });
  const tools = segmented("measure", measures.map(m => [m.name, m.title, m.about]), again);
  again();
  return figure("Spread over seeds", place, "Large dots are means, small ones single seeds, bars one standard deviation. The best is on top.", [tools]);
}
