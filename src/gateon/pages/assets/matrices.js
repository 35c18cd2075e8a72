// Matrices: numbers as colours on a canvas, with the numbers in the cells where they fit, and on hover.

// rows[k][j]; down and across say what rows and columns are: {title, names, short}
function matrix(rows, { down, across, colour, label, tell = label, fits = 25, width = halfWidth() }) {
  const height = rows.length, columns = Math.max(1, ...rows.map(row => row.length));
  const written = down.short && height <= 30, most = written ? Math.max(...down.short.map(name => Math.min(22, name.length))) : 0;
  const left = written ? 14 + 6.6 * most : 40, top = 34;
  const cell = Math.max(3, Math.min(46, Math.floor((width - left) / columns), Math.floor(620 / height)));
  const [wide, tall] = [left + cell * columns + 6, top + cell * height + 6];
  const canvas = element("canvas", { role: "img", "aria-label": `${down.title} by ${across.title}, ${height} by ${columns}` });
  const at = event => {
    const box = canvas.getBoundingClientRect(), zoom = wide / box.width;
    return [Math.floor(((event.clientY - box.top) * zoom - top) / cell), Math.floor(((event.clientX - box.left) * zoom - left) / cell)];
  };
  function paint() {
    const scale = window.devicePixelRatio || 1, gap = cell > 9 ? 1 : 0;
    canvas.width = Math.round(wide * scale);
    canvas.height = Math.round(tall * scale);
    canvas.style.width = `${wide}px`;
    canvas.style.height = `${tall}px`;
    const pen = canvas.getContext("2d"), empty = style("--empty"), font = getComputedStyle(document.body).fontFamily;
    pen.scale(scale, scale);
    pen.textBaseline = "middle";
    pen.textAlign = "center";
    pen.font = `${Math.min(12, cell * 0.4)}px ${font}`;
    rows.forEach((row, k) => row.forEach((value, j) => {
      const filled = value === undefined ? undefined : colour(value);
      if (filled === undefined) return;
      pen.fillStyle = filled ? `rgb(${filled})` : empty;
      pen.fillRect(left + j * cell, top + k * cell, cell - gap, cell - gap);
      if (filled && cell >= fits) {
        pen.fillStyle = onto(filled);
        pen.fillText(label(value), left + (j + 0.5) * cell, top + (k + 0.5) * cell);
      }
    }));
    pen.font = `11px ${font}`;
    pen.fillStyle = style("--soft");
    const every = Math.max(1, Math.ceil(24 / cell)), ticks = n => n % every === 0 || n === 0;
    for (let j = 0; j < columns; j++) if (ticks(j)) pen.fillText(across.names[j].number, left + (j + 0.5) * cell, top - 9);
    pen.textAlign = "right";
    for (let k = 0; k < height; k++)
      if (written || ticks(k)) pen.fillText(written ? shorter(down.short[k], 22) : down.names[k].number, left - 8, top + (k + 0.5) * cell);
    pen.textAlign = "left";
    pen.fillText(`${across.title} →`, left, 9);
    if (!written) {
      pen.save();
      pen.translate(9, top);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "right";
      pen.fillText(`← ${down.title}`, 0, 0);
      pen.restore();
    }
  }
  hinting(canvas, event => {
    const [k, j] = at(event), value = rows[k]?.[j];
    return value === undefined ? "" : `${down.title} ${down.names[k].full}\n${across.title} ${across.names[j].full}\n${value === null ? "not measured" : tell(value)}`;
  });
  repaint.push(paint);
  paint();
  return canvas;
}

// How things that are counted from 1 are called on an axis and in full.
const numbered = names => names.map((name, n) => ({ number: String(n + 1), full: `${n + 1}, ${name}` }));

// The range of accuracies worth showing: from a round number below the lowest to 100 %.
function accuracyRange(rows) {
  const low = rows.flat().reduce((found, v) => v == null ? found : Math.min(found, v), 1);
  return [Math.min(0.8, Math.floor(low * 10) / 10), 1];
}

// Accuracy, or what was lost since each column was learned, as the reader chooses.
function accuracyMatrix(name, rows, learned, down, across) {
  const changes = rows.map((row, k) => row.map((value, j) => value == null || learned[j] == null || learned[j] > k ? value === undefined ? undefined : value === null ? null : undefined : value - rows[learned[j]][j]));
  const [low, high] = accuracyRange(rows);
  const [place, again] = redrawn(() => {
    const lost = VIEW.get(name) === "change";
    const most = changes.flat().reduce((found, v) => v == null ? found : Math.max(found, Math.abs(v)), 0.05);
    const canvas = lost
      ? matrix(changes, { down, across, colour: scaled(DIVERGING, -most, most), label: v => signed(100 * v, 0), tell: v => `${signed(100 * v, 2)} points since it was learned` })
      : matrix(rows, { down, across, colour: scaled(SEQUENTIAL, low, high), label: v => percent(v, 0), tell: v => `${percent(v)} %` });
    const bar = lost ? scaleBar(DIVERGING, `−${percent(most, 0)} points`, `+${percent(most, 0)}`) : scaleBar(SEQUENTIAL, `${percent(low, 0)} %`, "100 %");
    return [canvas, bar];
  });
  const tools = segmented(name, [["accuracy", "accuracy"], ["change", "change since learned"]], again);
  again();
  return [place, tools];
}
