// Dots: a row for each thing, its mean with its spread, every single value, and what it is held against.

// rows = [{name, colour, mean, spread, each: [], beside}]; beside is another's number, if there is one
function dots(rows, { format, title, low, high, width = pageWidth(), best, besideName }) {
  const each = 26, values = rows.flatMap(row => [
    ...(row.mean == null ? [] : [row.mean - (row.spread || 0), row.mean + (row.spread || 0), ...(row.each ?? [])]),
    ...(row.beside == null ? [] : [row.beside])]);
  const [floor, ceiling, gap] = rounded(low ?? Math.min(...values), high ?? Math.max(...values), Math.max(2, Math.floor(width / 130)));
  const left = Math.min(width * 0.36, 16 + 7.2 * Math.max(...rows.map(row => Math.min(30, row.name.length)))), right = 96, top = 8;
  const height = top + each * rows.length + 40;
  const place = value => left + (value - floor) / (ceiling - floor || 1) * (width - left - right);
  const root = drawn("svg", { class: "dots", viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": title });
  const bottom = top + each * rows.length;
  for (let value = floor; value <= ceiling + gap / 2; value += gap) {
    root.append(drawn("line", { class: "axis", x1: place(value), x2: place(value), y1: top, y2: bottom + 4 }),
      drawn("text", { x: place(value), y: bottom + 18, "text-anchor": "middle" }, format(value, gap)));
  }
  root.append(drawn("text", { class: "name", x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, title));
  rows.forEach((row, n) => {
    const y = top + each * (n + 0.5);
    const group = drawn("g", { class: "row", "data-row": row.name, style: `--c: ${ink(row.colour)}` });
    group.append(drawn("rect", { class: "back", x: 0, y: y - each / 2, width, height: each }),
      drawn("text", { class: "label", x: left - 12, y: y + 4, "text-anchor": "end" }, shorter(row.name, 30)));
    if (row.mean != null) {
      if (row.spread) group.append(drawn("line", { class: "spread", x1: place(row.mean - row.spread), x2: place(row.mean + row.spread), y1: y, y2: y }));
      if (row.beside != null) group.append(drawn("line", { class: "between", x1: place(row.beside), x2: place(row.mean), y1: y, y2: y }));
      for (const value of row.each?.length > 1 ? row.each : []) group.append(drawn("circle", { class: "single", cx: place(value), cy: y, r: 3.2 }));
      group.append(drawn("circle", { class: "mean", cx: place(row.mean), cy: y, r: 5 }));
    }
    if (row.beside != null) group.append(drawn("path", { class: "beside", d: `M${place(row.beside)} ${y - 6}l6 6l-6 6l-6-6z` }));
    const told = row.mean == null ? row.beside == null ? "–" : `(${format(row.beside)})` : format(row.mean) + (row.spread ? ` ± ${format(row.spread)}` : "");
    group.append(drawn("text", { class: row.name === best ? "value best" : "value", x: width - right + 12, y: y + 4 }, told));
    hinting(group, () => `${row.name}: ${told}${row.each?.length > 1 ? `\neach: ${row.each.map(v => format(v)).join(", ")}` : ""}${row.beside == null ? "" : `\n${besideName}: ${format(row.beside)}`}`);
    root.append(group);
  });
  return root;
}
