// The raster: what single units did over time, a row for each unit, a column for each sample.

const QUANTITIES = {
  availability: "A of the unit: 1 learns freely, 0 is frozen",
  gain: "σ(v): how open its gate is in the context being learned",
  relevance: "how much its learning matters to the loss, in units of the layer's mean",
  activity: "mean size of its gated activity over the batch",
};
const ORDERS = [["context", "by first task"], ["frozen", "frozen first"], ["number", "as numbered"]];

// Numbers of a site, unpacked once: value(quantity, row, column)
function readSite(raster, site) {
  site.read ??= Object.fromEntries(Object.entries(site.quantities).map(([name, held]) => [name, unpacked(held.data)]));
  const columns = raster.steps.length;
  return (quantity, row, column) => {
    const { low, high } = site.quantities[quantity];
    return decoded(site.read[quantity][row * columns + column], low, high);
  };
}

function unitOrder(raster, site, how) {
  const value = readSite(raster, site), rows = site.units.map((_, row) => row), last = raster.steps.length - 1;
  if (how === "number") return rows;
  const key = row => {
    if (how === "frozen") return value("availability", row, last) ?? 2;
    for (let column = 0; column <= last; column++)
      if (value("gain", row, column) > 0.05) return raster.contexts[column] + (1 - (value("availability", row, last) ?? 1)) / 2;
    return Infinity;
  };
  const keys = rows.map(key);
  return rows.sort((a, b) => keys[a] - keys[b]);
}

// Stretches of samples that were learned in one context, with the task they began in.
function stretches(raster) {
  const found = [];
  raster.contexts.forEach((context, column) => {
    const task = raster.tasks[column], last = found.at(-1);
    if (last && last.context === context && last.task === task) last.to = column + 1;
    else found.push({ context, task, from: column, to: column + 1 });
  });
  return found;
}

function rasterSection(run) {
  const { raster } = run, of = name => raster.sites.find(site => site.name === name);
  const names = raster.sites.map(site => [site.name, `layer ${site.name}: ${site.units.length} of ${grouped(site.of)} units`]);
  const [picture, drawPicture] = redrawn(() => {
    const site = of(VIEW.get("raster site")), quantity = VIEW.get("raster quantity"), held = site.quantities[quantity];
    const chosen = VIEW.get("raster unit"), known = chosen && chosen.site === site.name && chosen.row < site.units.length;
    if (!known) VIEW.set("raster unit", { site: site.name, row: mostFrozen(raster, site) });
    drawUnit();
    return figure(null, rasterCanvas(run, site, quantity, row => { VIEW.set("raster unit", { site: site.name, row }); drawPicture(); }),
      `${QUANTITIES[quantity]}. A row is a unit, a column one of ${raster.steps.length} samples in time; the strip on top is the context. Hover for numbers, click a unit to see it below.`,
      [scaleBar(SEQUENTIAL, compact(held.low), `${held.clipped ? "≥ " : ""}${compact(held.high)}`)]);
  });
  const [unit, drawUnit] = redrawn(() => oneUnit(run, of(VIEW.get("raster site")), VIEW.get("raster unit").row));
  const tools = element("div", { class: "tools bar" },
    dropdown("raster site", "Layer", names, drawPicture),
    segmented("raster quantity", Object.keys(QUANTITIES).map(name => [name, name, QUANTITIES[name]]), drawPicture),
    dropdown("raster order", "Order", ORDERS, drawPicture));
  drawPicture();
  return section("raster", "Units", "Single units over time", `Which units freeze, and when they come back: a sample of units, every ${raster.every} steps.`,
    tools, picture, side_by_side(unit, layerMeans(run)));
}

const compact = value => value == null ? "not measured" : Number(value.toPrecision(3)).toString();

function mostFrozen(raster, site) {
  const value = readSite(raster, site), fall = row => (value("availability", row, 0) ?? 1) - (value("availability", row, raster.steps.length - 1) ?? 1);
  return site.units.map((_, row) => row).reduce((best, row) => fall(row) > fall(best) ? row : best, 0);
}

function rasterCanvas(run, site, quantity, pick) {
  const { raster } = run, value = readSite(raster, site), order = unitOrder(raster, site, VIEW.get("raster order"));
  const columns = raster.steps.length, rows = order.length;
  const left = 44, top = 30, width = pageWidth() - left, each = Math.max(3, Math.min(9, Math.floor(460 / rows))), height = each * rows;
  const canvas = element("canvas", { role: "img", "aria-label": `${quantity} of ${rows} units of layer ${site.name} over ${columns} samples` });
  const at = event => {
    const box = canvas.getBoundingClientRect(), zoom = (left + width) / box.width;
    const [x, y] = [(event.clientX - box.left) * zoom - left, (event.clientY - box.top) * zoom - top];
    return [Math.floor(y / each), Math.floor(x / width * columns)];
  };
  function paint() {
    const scale = window.devicePixelRatio || 1, pen = canvas.getContext("2d"), font = getComputedStyle(document.body).fontFamily;
    [canvas.width, canvas.height] = [Math.round((left + width) * scale), Math.round((top + height + 22) * scale)];
    [canvas.style.width, canvas.style.height] = [`${left + width}px`, `${top + height + 22}px`];
    pen.scale(scale, scale);
    const small = new OffscreenCanvas(columns, rows), dots = new ImageData(columns, rows), colours = table256(SEQUENTIAL), data = site.read[quantity];
    order.forEach((row, n) => {
      for (let column = 0; column < columns; column++) {
        const from = 4 * data[row * columns + column], to = 4 * (n * columns + column);
        for (let k = 0; k < 4; k++) dots.data[to + k] = colours[from + k];
      }
    });
    small.getContext("2d").putImageData(dots, 0, 0);
    pen.imageSmoothingEnabled = false;
    pen.drawImage(small, left, top, width, height);
    pen.font = `11px ${font}`;
    pen.textBaseline = "middle";
    const [soft, line, paper] = [style("--soft"), style("--line"), style("--paper")];
    const x = column => left + column / columns * width;
    let lettered = -Infinity;
    for (const part of stretches(raster)) {
      pen.fillStyle = part.context < 0 ? line : FACTS.palette[part.context % FACTS.palette.length];
      pen.fillRect(x(part.from), top - 8, Math.max(1, x(part.to) - x(part.from) - 1), 5);
      if (part.from) { pen.globalAlpha = 0.6; pen.fillStyle = paper; pen.fillRect(x(part.from) - 0.5, top, 1, height); pen.globalAlpha = 1; }
      if (x(part.from) - lettered > 22) { pen.fillStyle = soft; pen.textAlign = "left"; pen.fillText(part.task < 0 ? part.context + 1 : part.task + 1, x(part.from), top - 17); lettered = x(part.from); }
    }
    pen.fillStyle = soft;
    pen.textAlign = "right";
    pen.fillText("task", left - 8, top - 17);
    for (let n = 0; n < rows; n += Math.max(1, Math.ceil(16 / each))) pen.fillText(site.units[order[n]], left - 8, top + (n + 0.5) * each);
    const ticks = Math.min(6, columns);
    for (let k = 0; k < ticks; k++) {
      const column = Math.round(k / Math.max(1, ticks - 1) * (columns - 1)), end = k > 0 && k === ticks - 1;
      pen.textAlign = k === 0 ? "left" : end ? "right" : "center";
      pen.fillText(`${k === 0 ? "step " : ""}${grouped(raster.steps[column])}`, end ? left + width : x(column), top + height + 13);
    }
    const chosen = order.indexOf(VIEW.get("raster unit").row);
    pen.strokeStyle = style("--mark");
    pen.lineWidth = 1.5;
    pen.strokeRect(left + 0.75, top + chosen * each - 0.5, width - 1.5, each + 1);
  }
  hinting(canvas, event => {
    const [n, column] = at(event), row = order[n];
    if (row === undefined || column < 0 || column >= columns) return "";
    const task = raster.tasks[column];
    return `unit ${site.units[row]}, step ${grouped(raster.steps[column])}${task < 0 ? "" : `\ntask ${task + 1}, ${run.tasks[task] ?? ""}`}\n${Object.keys(QUANTITIES).map(name => `${name} ${compact(value(name, row, column))}`).join("\n")}`;
  });
  canvas.addEventListener("click", event => { const row = order[at(event)[0]]; if (row !== undefined) pick(row); });
  readSite(raster, site);
  repaint.push(paint);
  paint();
  return canvas;
}

// One unit: all four quantities over time; those without a range of their own as shares of their most.
function oneUnit(run, site, row) {
  const { raster } = run, value = readSite(raster, site);
  const series = Object.keys(QUANTITIES).map((name, n) => {
    const { high } = site.quantities[name], own = name === "gain" || name === "availability";
    const points = raster.steps.map((step, column) => [step, value(name, row, column)]);
    return { name, colour: FACTS.palette[[0, 2, 1, 3][n]], points: own ? points : points.map(([step, v]) => [step, v == null ? null : v / high]) };
  });
  const marks = stretches(raster).slice(1).map(part => ({ at: raster.steps[part.from] }));
  const root = chart(series, { x: "step", low: 0, high: 1, format: v => v.toFixed(1), tell: v => v.toFixed(3), marks });
  return figure(`Unit ${site.units[row]} of layer ${site.name}`, root,
    `Relevance and activity as shares of their most in this layer (${compact(site.quantities.relevance.high)} and ${compact(site.quantities.activity.high)}). Dashed: a new task.`);
}

// The mean availability of the units that are watched, layer by layer.
function layerMeans(run) {
  const { raster } = run;
  const series = raster.sites.map((site, n) => {
    const value = readSite(raster, site);
    return { name: `layer ${site.name}`, colour: FACTS.palette[n % FACTS.palette.length], dash: Math.floor(n / FACTS.palette.length),
      points: raster.steps.map((step, column) => {
        const found = site.units.map((_, row) => value("availability", row, column)).filter(v => v != null);
        return [step, found.length ? found.reduce((a, b) => a + b, 0) / found.length : null];
      }) };
  });
  const marks = stretches(raster).slice(1).map(part => ({ at: raster.steps[part.from] }));
  return figure("Mean availability by layer", chart(series, { x: "step", low: 0, high: 1, format: v => v.toFixed(1), tell: v => v.toFixed(3), marks }),
    "Of the units in the raster, step by step: each task takes its share.");
}
