"use strict";
// The page is drawn from one object, FACTS (see report/facts.py). All text of users goes through
// textContent, so that a name is never read as markup.
const FACTS = JSON.parse(document.getElementById("facts").textContent);
const percent = (value, digits = 2) => value == null ? "–" : (100 * value).toFixed(digits);
const VIRIDIS = ["#440154", "#482878", "#3e4a89", "#31688e", "#26828e", "#1f9e89", "#35b779", "#6ece58", "#b5de2b", "#fde725"];

// Elements

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children.filter(child => child != null));
  return made;
}

function drawn(name, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

const tip = element("div", { id: "tip", hidden: "", role: "status" });

function hint(event, text) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - tip.offsetHeight - 8)}px`;
}

function hinting(target, text) {
  target.addEventListener("pointermove", event => hint(event, text(event)));
  target.addEventListener("pointerleave", event => hint(event, ""));
}

function section(id, title, about, ...children) {
  return element("section", { id }, element("h2", {}, title), element("p", { class: "soft" }, about), ...children);
}

function figure(content, caption) {
  return element("figure", {}, content, caption ? element("figcaption", {}, caption) : null);
}

// Colours

function mixed(stops, share) {
  const at = Math.max(0, Math.min(1, share)) * (stops.length - 1), low = Math.floor(at);
  const [a, b] = [stops[low], stops[Math.min(low + 1, stops.length - 1)]];
  const part = n => [1, 3, 5].map(i => parseInt(n.slice(i, i + 2), 16));
  const [from, to] = [part(a), part(b)];
  return from.map((value, i) => Math.round(value + (at - low) * (to[i] - value)));
}

const onto = ([r, g, b]) => 0.3 * r + 0.6 * g + 0.1 * b > 140 ? "#111" : "#fff";

// Matrices

function matrix(rows, { across, down, words, low = 0, high = 1, label = v => percent(v, 0) }) {
  const size = rows.length, cell = Math.max(4, Math.min(44, Math.floor(480 / size)));
  const margin = 34, side = margin + cell * size, scale = window.devicePixelRatio || 1;
  const canvas = element("canvas", { role: "img", "aria-label": `${down} by ${across}, ${size} by ${size}` });
  const at = event => {
    const box = canvas.getBoundingClientRect(), zoom = side / box.width;
    return [event.clientY - box.top, event.clientX - box.left].map(p => Math.floor((p * zoom - margin) / cell));
  };
  function paint() {
    const style = getComputedStyle(document.documentElement);
    canvas.width = canvas.height = Math.round(side * scale);
    canvas.style.width = `${side}px`;
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    pen.font = `${Math.min(12, cell * 0.42)}px system-ui, sans-serif`;
    pen.textAlign = "center";
    pen.textBaseline = "middle";
    rows.forEach((row, k) => row.forEach((value, j) => {
      const colour = value == null ? null : mixed(VIRIDIS, (value - low) / (high - low));
      pen.fillStyle = colour ? `rgb(${colour})` : style.getPropertyValue("--empty");
      pen.fillRect(margin + j * cell, margin + k * cell, cell - (cell > 8), cell - (cell > 8));
      if (colour && cell >= 26) {
        pen.fillStyle = onto(colour);
        pen.fillText(label(value), margin + (j + 0.5) * cell, margin + (k + 0.5) * cell);
      }
    }));
    pen.font = "11px system-ui, sans-serif";
    pen.fillStyle = style.getPropertyValue("--soft");
    const every = Math.ceil(size / Math.floor(480 / 26));
    for (let n = 0; n < size; n += every) {
      const name = words ? words[n] : n + 1;
      pen.fillText(name, margin + (n + 0.5) * cell, margin - 9);
      pen.fillText(name, margin - 12, margin + (n + 0.5) * cell);
    }
  }
  hinting(canvas, event => {
    const [k, j] = at(event), value = rows[k]?.[j];
    return value === undefined ? "" : `${down} ${words ? words[k] : k + 1}, ${across} ${words ? words[j] : j + 1}: ${value == null ? "not measured" : label(value, true)}`;
  });
  repaint.push(paint);
  paint();
  return canvas;
}

const repaint = [];

// Lines: series = [{name, colour, points: [[x, y]], band: [[x, low, high]], faint}]

// The range widened to round numbers, and the distance of about `count` ticks.
function rounded(low, high, count) {
  const rough = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(rough));
  const gap = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough * 0.999);
  return [Math.floor(low / gap + 1e-9) * gap, Math.ceil(high / gap - 1e-9) * gap, gap];
}

function chart(series, { x, y, low, high, format = v => percent(v, 0), marks = [], width = 520, height = 270 }) {
  const labels = series.some(one => !one.faint);
  const box = { left: 44, right: labels ? 112 : 14, top: 12, bottom: 34 };
  const points = series.flatMap(one => one.points);
  const most = Math.max(1, ...points.map(p => p[0])), least = Math.min(most - 1, ...points.map(p => p[0]));
  const values = [...points.map(p => p[1]), ...series.flatMap(one => (one.band ?? []).flatMap(b => [b[1], b[2]]))].filter(v => v != null);
  const [floor, ceiling, gap] = rounded(low ?? Math.max(0, Math.min(...values)), high ?? Math.min(1, Math.max(...values)), 5);
  const place = (px, py) => [
    box.left + (px - least) / (most - least || 1) * (width - box.left - box.right),
    height - box.bottom - (Math.max(floor, Math.min(ceiling, py)) - floor) / (ceiling - floor || 1) * (height - box.top - box.bottom)];
  const root = drawn("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${y} by ${x}` });
  for (let value = floor; value <= ceiling + gap / 2; value += gap) {
    const [, py] = place(least, value);
    root.append(drawn("line", { class: "axis", x1: box.left, x2: width - box.right, y1: py, y2: py }));
    root.append(drawn("text", { x: box.left - 6, y: py + 4, "text-anchor": "end" }, format(value)));
  }
  const every = Math.max(1, rounded(least, most, 10)[2]);
  for (let value = Math.ceil(least / every) * every || least; value <= most; value += every) {
    const [px] = place(value, floor);
    root.append(drawn("text", { x: px, y: height - box.bottom + 16, "text-anchor": "middle" }, value));
  }
  root.append(drawn("text", { x: (box.left + width - box.right) / 2, y: height - 4, "text-anchor": "middle" }, x));
  for (const mark of marks) {
    const [px] = place(mark.at, floor);
    const line = drawn("line", { x1: px, x2: px, y1: box.top, y2: height - box.bottom, stroke: mark.colour, "stroke-dasharray": "3 3" });
    hinting(line, () => mark.text);
    root.append(line);
  }
  const ends = [];
  for (const one of series) {
    const group = drawn("g", { "data-name": one.name });
    const path = list => list.filter(p => p[1] != null).map((p, n) => (n ? "L" : "M") + place(p[0], p[1]).map(v => v.toFixed(1)).join(" ")).join("");
    if (one.band?.length > 1) {
      const around = [...one.band.map(([px, bottom]) => [px, bottom]), ...one.band.map(([px, , top]) => [px, top]).reverse()];
      group.append(drawn("path", { d: `${path(around)}Z`, fill: one.colour, opacity: 0.15 }));
    }
    const line = drawn("path", { class: `curve${one.faint ? " faint" : ""}`, d: path(one.points), stroke: one.colour });
    const last = one.points.filter(p => p[1] != null).at(-1);
    hinting(line, () => `${one.name}${last ? `: ${format(last[1], true)} at the end` : ""}`);
    if (one.faint) ["enter", "leave"].forEach(way => line.addEventListener(`pointer${way}`, () => line.classList.toggle("shown", way === "enter")));
    group.append(line);
    if (one.points.length < 30 && !one.faint) {
      for (const [px, py] of one.points) {
        if (py == null) continue;
        const [cx, cy] = place(px, py), dot = drawn("circle", { cx, cy, r: 3, fill: one.colour });
        hinting(dot, () => `${one.name}, ${x} ${px}: ${format(py, true)}`);
        group.append(dot);
      }
    }
    if (last && !one.faint) ends.push({ one, group, y: place(...last)[1], x: place(...last)[0] });
    root.append(group);
  }
  // Direct labels at the ends of the lines, pushed apart so that none covers another.
  ends.sort((a, b) => a.y - b.y);
  ends.forEach((end, n) => { end.at = Math.max(end.y, n ? ends[n - 1].at + 13 : 0); });
  const over = ends.length ? ends.at(-1).at - (height - box.bottom) : 0;
  if (over > 0) ends.forEach(end => { end.at -= over; });
  for (const end of ends) {
    const name = end.one.name.length > 15 ? `${end.one.name.slice(0, 14)}…` : end.one.name;
    const text = drawn("text", { x: width - box.right + 8, y: end.at + 4 }, name);
    text.style.fill = end.one.colour;
    end.group.append(text);
  }
  return root;
}

function legend(root, series) {
  return element("ul", { class: "legend" }, ...series.map(one => {
    const button = element("button", { "aria-pressed": "true", onclick: () => {
      const shown = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", shown);
      for (const group of root.querySelectorAll("g[data-name]"))
        if (group.dataset.name === one.name) group.style.display = shown ? "" : "none";
    } }, element("i", { style: `background:${one.colour}` }), one.name);
    return element("li", {}, button);
  }));
}

// Tables whose columns sort; a column is {title, value: row => number, text: row => string, best: "max" | "min"}

function sortable(columns, rows) {
  const body = element("tbody");
  const best = columns.map(c => {
    const values = c.best && rows.map(c.value).filter(v => v != null);
    return values?.length > 1 ? Math[c.best](...values) : NaN;
  });
  const fill = sorted => body.replaceChildren(...sorted.map(row => element("tr", {}, ...columns.map((c, n) =>
    element("td", { class: c.value(row) === best[n] ? "best" : undefined }, c.text(row))))));
  const heads = columns.map(c => {
    const sort = () => {
      const up = head.getAttribute("aria-sort") === "descending";
      heads.forEach(other => other.setAttribute("aria-sort", "none"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const key = row => c.value(row) ?? -Infinity;
      fill([...rows].sort((a, b) => (key(a) < key(b) ? -1 : key(a) > key(b) ? 1 : 0) * (up ? 1 : -1)));
    };
    const head = element("th", { scope: "col", tabindex: 0, "aria-sort": "none", onclick: sort,
      onkeydown: event => { if (event.key === "Enter") sort(); } }, c.title);
    return head;
  });
  fill(rows);
  return element("div", { class: "scroll" }, element("table", {}, element("thead", {}, element("tr", {}, ...heads)), body));
}

function plain(facts) {
  return element("table", { class: "plain" }, element("tbody", {}, ...Object.entries(facts).map(([name, value]) =>
    element("tr", {}, element("td", {}, name), element("td", {}, typeof value === "object" && value !== null ? JSON.stringify(value) : String(value))))));
}

// Sections

function glance() {
  const one = FACTS.methods.length === 1 && FACTS.methods[0].measures;
  if (!one) return null;
  return element("section", { id: "glance" }, element("div", { class: "cards" }, ...FACTS.measures.filter(m => one[m.name]).map(m =>
    element("div", { class: "card" }, element("b", {}, shown(m, one[m.name])), element("span", {}, m.title)))));
}

function shown(measure, found) {
  if (!found) return "–";
  if (measure.unit === "s") return `${found.mean.toFixed(found.mean < 10 ? 1 : 0)} s`;
  return percent(found.mean) + (found.count > 1 ? ` ± ${percent(found.spread)}` : "");
}

function comparison() {
  if (FACTS.methods.length < 2) return null;
  const columns = [
    { title: "method", value: row => row.name, text: row => row.name },
    { title: "seeds", value: row => row.runs.length, text: row => row.runs.length },
    ...FACTS.measures.filter(m => FACTS.methods.some(row => row.measures[m.name])).map(m => ({
      title: m.title, best: m.best, value: row => row.measures[m.name]?.mean, text: row => shown(m, row.measures[m.name]) })),
  ];
  const series = FACTS.methods.map(row => ({ name: row.name, colour: row.colour, points: row.curve.map(p => [p[0], p[1]]), band: row.curve.map(p => [p[0], p[1] - p[2], p[1] + p[2]]) }));
  const root = chart(series, { x: "tasks learned", y: "mean accuracy (%)", width: 860, height: 320 });
  return section("methods", "Methods side by side", `Percent, mean ± standard deviation over seeds on the ${FACTS.part} data. Click a column to sort.`,
    sortable(columns, FACTS.methods),
    figure(element("div", {}, root, legend(root, series)), "Mean accuracy over all tasks learned so far; the band is one standard deviation over seeds."));
}

function retained(run) {
  const series = run.tasks.map((name, j) => ({
    name: `${j + 1} ${name}`, faint: run.tasks.length > 6, colour: run.tasks.length > 6 ? `rgb(${mixed(VIRIDIS.slice(0, 9), j / (run.tasks.length - 1))})` : FACTS.palette[j % FACTS.palette.length],
    points: run.accuracy.slice(j).map((row, n) => [j + n + 1, row[j]]) }));
  return element("div", { class: "two" },
    figure(matrix(run.accuracy, { across: "tested on", down: "after task", label: (v, full) => percent(v, full ? 2 : 0) }), "Accuracy on every task (across) after each task was learned (down), in percent. Hover for the numbers."),
    figure(chart(series, { x: "tasks learned", y: "accuracy (%)" }), "Each line is one task, from when it was learned. A line that stays level was not forgotten."));
}

function free(run) {
  if (!run.availability.length) return null;
  const sites = Object.keys(run.availability[0]);
  const series = (key, title) => [title, sites.map((site, n) => ({ name: `layer ${site}`, colour: FACTS.palette[n % FACTS.palette.length],
    points: run.availability.map((at, k) => [k + 1, at[site]?.[key] ?? null]) }))];
  const charts = [series("room", "Room left: mean availability"), series("frozen", "Frozen: share of availabilities below 0.05")].map(([title, lines]) => {
    const root = chart(lines, { x: "tasks learned", y: title, low: 0, high: 1 });
    return figure(element("div", {}, element("h3", {}, title), root));
  });
  return element("div", {}, element("div", { class: "two" }, ...charts), run.scarcest ? element("p", {}, run.scarcest) : null);
}

function contexts(run) {
  if (!run.gates) return null;
  const { order, overlap } = run.gates, sorted = order.map(i => order.map(j => overlap[i][j]));
  return figure(matrix(sorted, { across: "context", down: "context", words: order.map(i => i + 1), label: (v, full) => percent(v, full ? 1 : 0) }),
    `Share of open units that two contexts have in common (${run.gates.units.toLocaleString("en")} units). Contexts are ordered so that similar ones stand together.`);
}

function detector(run) {
  if (!run.switches) return null;
  const rows = run.switches;
  return sortable([
    { title: "task at hand", value: r => r.task, text: r => `${r.task + 1} ${run.tasks[r.task]}` },
    { title: "step", value: r => r.step, text: r => r.step },
    { title: "switched to context", value: r => r.context, text: r => r.context },
  ], rows);
}

function within(run) {
  if (!run.curves.some(curve => curve.length)) return null;
  const series = run.curves.map((points, j) => ({ name: `${j + 1} ${run.tasks[j]}`, faint: run.curves.length > 6, colour: FACTS.palette[j % FACTS.palette.length], points }));
  return figure(chart(series, { x: "step of the task", y: "accuracy (%)" }), "Accuracy on a task while it is being learned.");
}

function oneRun() {
  const place = element("div");
  const show = index => {
    const run = FACTS.runs[index];
    const parts = [
      section("retained", "What is retained", "How well every task is still solved as others are learned after it.", retained(run)),
      run.availability.length ? section("room", "What is still free", "Availability of units or parameters, by layer: it falls as they prove relevant, and what is not available no longer changes.", free(run)) : null,
      run.gates ? section("gates", "Which units each context uses", "Gates give every context a sub-network of its own, partly shared.", contexts(run)) : null,
      run.switches ? section("detector", "Switches that were found", run.switches.length ? "Nobody said when a task ended; the detector found these switches." : "Nobody said when a task ended; no switch was found.", run.switches.length ? detector(run) : null) : null,
      run.curves.some(c => c.length) ? section("within", "While learning", "How fast each task is learned.", within(run)) : null,
      section("settings", "How it was made", run.folder,
        run.command ? element("pre", {}, run.command) : null,
        element("details", {}, element("summary", {}, "Settings"), ...Object.entries(run.settings).map(([name, values]) => element("div", {}, element("h3", {}, name), plain(values)))),
        element("details", {}, element("summary", {}, "Versions, machine and data"), plain({ ...run.environment, data: run.data }))),
    ];
    repaint.length = 0;
    place.replaceChildren(...parts.filter(Boolean));
    if (run.note) place.prepend(element("p", { class: "note" }, run.note));
  };
  const choice = element("select", { "aria-label": "run", onchange: () => show(choice.value) },
    ...FACTS.runs.map((run, n) => element("option", { value: n }, run.name)));
  show(0);
  return element("div", {}, FACTS.runs.length > 1 ? element("p", {}, "One run: ", choice) : null, place);
}

function theme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const set = name => { document.documentElement.dataset.theme = name; repaint.forEach(paint => paint()); };
  set(dark.matches ? "dark" : "light");
  dark.addEventListener("change", () => set(dark.matches ? "dark" : "light"));
  return element("button", { onclick: () => set(document.documentElement.dataset.theme === "dark" ? "light" : "dark") }, "light / dark");
}

document.body.append(
  element("header", {}, element("div", {}, element("h1", {}, FACTS.title), element("p", { class: "soft" }, FACTS.about)), theme()),
  element("main", {}, ...[glance(), comparison(), oneRun()].filter(Boolean)), tip);
