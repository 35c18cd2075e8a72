// Lines: series = [{name, colour, dash, points: [[x, y]], band: [[x, low, high]], faint, thin, loose}]; loose is dots alone

// The range widened to round numbers, and the distance of about `count` ticks.
function rounded(low, high, count) {
  const rough = (high - low || 1) / count, power = 10 ** Math.floor(Math.log10(rough));
  const gap = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough * 0.999);
  return [Math.floor(low / gap + 1e-9) * gap, Math.ceil(high / gap - 1e-9) * gap, gap];
}

// 0.05 apart needs two digits, 1 none: as many as tell neighbouring ticks apart.
const digitsFor = gap => Math.max(0, Math.min(6, -Math.floor(Math.log10(gap) + 1e-9)));
const DASHES = [undefined, "7 3", "2 3", "9 3 2 3"];

function axes(root, { box, width, height, x, y, floor, ceiling, gap, format, place, ticks }) {
  for (let value = floor; value <= ceiling + gap / 2; value += gap) {
    const py = place(null, value)[1];
    root.append(drawn("line", { class: "axis", x1: box.left, x2: width - box.right, y1: py, y2: py }),
      drawn("text", { x: box.left - 8, y: py + 4, "text-anchor": "end" }, format(value, gap)));
  }
  for (const value of ticks) {
    const px = place(value, floor)[0];
    root.append(drawn("text", { x: px, y: height - box.bottom + 17, "text-anchor": "middle" }, grouped(value)));
  }
  root.append(drawn("text", { class: "name", x: (box.left + width - box.right) / 2, y: height - 4, "text-anchor": "middle" }, x));
  if (y) root.append(drawn("text", { class: "name", x: 0, y: 11 }, y));
}

function chart(series, { x, y, low, high, format = (v, gap) => percent(v, gap ? digitsFor(gap * 100) : 2), tell = format, marks = [], width = halfWidth(), height = 280, labels = true }) {
  const direct = labels && series.some(one => !one.faint);
  const longest = Math.max(0, ...series.map(one => Math.min(18, one.name.length)));
  const box = { left: 46, right: direct ? Math.min(140, 18 + 6.6 * longest) : 14, top: y ? 24 : 12, bottom: 38 };
  const points = series.flatMap(one => one.points).filter(p => p[1] != null);
  const most = points.reduce((found, p) => Math.max(found, p[0]), 1), least = points.reduce((found, p) => Math.min(found, p[0]), most - 1);
  const values = [...points.map(p => p[1]), ...series.flatMap(one => (one.band ?? []).flatMap(b => [b[1], b[2]]))];
  const down = values.reduce((found, v) => Math.min(found, v), Infinity), up = values.reduce((found, v) => Math.max(found, v), -Infinity);
  const [floor, ceiling, gap] = rounded(low ?? Math.max(0, down), high ?? Math.min(1, up), 5);
  const place = (px, py) => [
    box.left + (px - least) / (most - least || 1) * (width - box.left - box.right),
    height - box.bottom - (Math.max(floor, Math.min(ceiling, py)) - floor) / (ceiling - floor || 1) * (height - box.top - box.bottom)];
  const root = drawn("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": `${y ?? series.map(s => s.name).join(", ")} by ${x}` });
  const every = Math.max(1, rounded(least, most, Math.max(2, Math.floor((width - 160) / 55)))[2]), ticks = [];
  for (let value = Math.ceil(least / every) * every || least; value <= most; value += every) ticks.push(value);
  axes(root, { box, width, height, x, y, floor, ceiling, gap, format, place, ticks });
  for (const mark of marks) {
    const [px] = place(mark.at, floor);
    root.append(drawn("line", { class: "mark", x1: px, x2: px, y1: box.top, y2: height - box.bottom }));
  }
  const ends = [], spots = [];
  for (const one of series) {
    const group = drawn("g", { "data-name": one.name, style: `--c: ${ink(one.colour)}` });
    if (VIEW.get(`hidden ${one.name}`)) group.style.display = "none";
    const path = list => {
      let pen = "M";
      return list.map(([px, py]) => {
        if (py == null) { pen = "M"; return ""; }
        const step = pen + place(px, py).map(v => v.toFixed(1)).join(" ");
        pen = "L";
        return step;
      }).join("");
    };
    if (one.band?.length > 1) {
      const around = [...one.band.map(([px, bottom]) => [px, bottom]), ...one.band.map(([px, , top]) => [px, top]).reverse()];
      group.append(drawn("path", { class: "band", d: `${path(around)}Z` }));
    }
    const line = drawn("path", { class: `curve${one.faint ? " faint" : ""}`, d: path(one.points), "stroke-dasharray": DASHES[one.dash ?? 0] });
    if (one.thin) line.classList.add("thin");
    if (!one.loose) group.append(line);
    const known = one.points.filter(p => p[1] != null), few = one.loose || one.points.length < 26 && !one.faint && !one.thin;
    for (const [px, py] of known) {
      const [cx, cy] = place(px, py);
      if (few) group.append(drawn("circle", { cx, cy, r: 2.6 }));
      spots.push({ cx, cy, group, text: `${one.name}\n${x} ${grouped(px)}: ${tell(py)}` });
    }
    if (known.length && direct && !one.faint) ends.push({ one, group, y: place(...known.at(-1))[1] });
    root.append(group);
  }
  directLabels(ends, { x: width - box.right + 9, bottom: height - box.bottom });
  followPointer(root, spots, width);
  return root;
}

// Names at the ends of the lines, pushed apart so that none covers another.
function directLabels(ends, { x, bottom }) {
  ends.sort((a, b) => a.y - b.y);
  ends.forEach((end, n) => { end.at = Math.max(end.y, n ? ends[n - 1].at + 14 : 0); });
  const over = ends.length ? ends.at(-1).at - bottom : 0;
  if (over > 0) ends.forEach(end => { end.at -= over; });
  for (let n = ends.length - 2; n >= 0; n--) ends[n].at = Math.min(ends[n].at, ends[n + 1].at - 14);
  for (const end of ends) end.group.append(drawn("text", { class: "end", x, y: end.at + 4 }, shorter(end.one.name, 18)));
}

// The point nearest to the pointer tells its number, and its line stands out.
function followPointer(root, spots, width) {
  let shown = null;
  const show = group => {
    shown?.classList.remove("shown");
    shown = group;
    group?.classList.add("shown");
    root.classList.toggle("focused", Boolean(group));
  };
  root.addEventListener("pointermove", event => {
    const around = root.getBoundingClientRect(), zoom = width / around.width;
    const [x, y] = [(event.clientX - around.left) * zoom, (event.clientY - around.top) * zoom];
    let best = null, distance = 900;
    for (const spot of spots) {
      const d = (spot.cx - x) ** 2 + (spot.cy - y) ** 2;
      if (d < distance && spot.group.style.display !== "none") [best, distance] = [spot, d];
    }
    show(best?.group ?? null);
    hint(event, best?.text ?? "");
  });
  root.addEventListener("pointerleave", event => { show(null); hint(event, ""); });
}

// Names that switch their lines on and off, in every chart given.
function legend(series, ...roots) {
  return element("ul", { class: "legend" }, ...series.map(one => {
    const name = `hidden ${one.name}`;
    const button = element("button", { "aria-pressed": String(!VIEW.get(name)), onclick: () => {
      VIEW.set(name, !VIEW.get(name));
      button.setAttribute("aria-pressed", String(!VIEW.get(name)));
      for (const group of roots.flatMap(root => [...root.querySelectorAll("g[data-name]")]))
        if (group.dataset.name === one.name) group.style.display = VIEW.get(name) ? "none" : "";
    } }, element("i", { style: `background: ${ink(one.colour)}` }), one.name);
    return element("li", {}, button);
  }));
}
