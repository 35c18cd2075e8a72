// One run, inside: single units, gates of contexts, the detector

const rastered = run => run.raster ? rasterSection(run) : null;

// A square of bytes as rows of numbers, in an order.
function square(held, size, low, high, order) {
  const raw = unpacked(held);
  return order.map(k => order.map(j => decoded(raw[k * size + j], low, high)));
}

function gatesSection(run) {
  if (!run.gates) return null;
  const { names, layers } = run.gates, size = names.length;
  const [place, again] = redrawn(() => {
    const layer = layers[Number(VIEW.get("gates layer"))];
    const order = VIEW.get("gates order") === "similar" ? run.gates.order : names.map((_, n) => n);
    const own = order.map(n => ({ number: String(n + 1), full: `${n + 1}, ${names[n]}` }));
    const axis = { title: "context", names: own };
    const shared = square(layer.overlap, size, 0, 1, order), alike = square(layer.correlation, size, -1, 1, order);
    const apart = shared.flatMap((row, k) => row.filter((_, j) => j < k));
    const most = Math.min(1, Math.max(0.1, Math.ceil(10 * Math.max(0, ...apart)) / 10));
    const far = Math.min(1, Math.max(0.1, Math.ceil(10 * Math.max(0, ...alike.flatMap((row, k) => row.filter((v, j) => j < k && v != null).map(Math.abs)))) / 10));
    return side_by_side(
      figure("Units in common", element("div", {}, matrix(shared, { down: axis, across: axis, colour: scaled(SEQUENTIAL, 0, most), label: v => percent(v, 0), tell: v => `${percent(v, 0)} % of their open units in common` }), scaleBar(SEQUENTIAL, "0 %", `${percent(most, 0)} %`)),
        `Open in both, of those open in either. ${grouped(layer.units)} units, ${percent(layer.open, 0)} % of them open in a context.`),
      figure("Correlation", element("div", {}, matrix(alike, { down: axis, across: axis, colour: scaled(DIVERGING, -far, far), label: v => fixed(v, 2).replace("0.", "."), fits: 33, tell: v => `correlation ${fixed(v, 2)}` }), scaleBar(DIVERGING, `−${far.toFixed(1)}`, far.toFixed(1))),
        "Of open gates over units (eq. 18, 19): 0 is what chance gives, 1 the same sub-network."));
  });
  const tools = element("div", { class: "tools bar" },
    segmented("gates order", [["learned", "in the order learned"], ["similar", "similar ones together"]], again),
    layers.length > 1 ? dropdown("gates layer", "Of", layers.map((layer, n) => [n, layer.name]), again) : (VIEW.set("gates layer", "0"), null));
  again();
  return section("gates", "Shared units", "Which units tasks share", "Gates give every context a sub-network of its own, partly shared with others.", tools, place);
}

function detector(run) {
  const found = run.detector;
  if (!found) return null;
  const steps = found.switches;
  const facts = [[`${found.real - found.missed} of ${found.real}`, "switches noticed"], [String(found.false_alarms), found.false_alarms === 1 ? "false alarm" : "false alarms"]];
  if (found.delay !== null) facts.push([String(found.delay), "batches into the new task, typically"]);
  if (found.returns) facts.push([`${found.recognised} of ${found.returns}`, "returning tasks recognised"]);
  if (found.collapses) facts.push([String(found.collapses), `new ${found.collapses === 1 ? "task" : "tasks"} taken for old ones`]);
  const columns = [
    { title: "during task", value: r => r.task, show: r => `${r.task + 1} ${shorter(run.tasks[r.task], 32)}` },
    { title: "at its batch", value: r => r.step + 1, show: r => r.step + 1 },
    { title: "switched to context", value: r => r.context, show: r => r.context + 1 },
  ];
  return section("detector", "Contexts", "Contexts that were found", "Nobody said when a task ended: the detector watched the loss. A switch that comes in the first batches of a task is right; one in its middle is a false alarm.",
    element("ul", { class: "sums" }, ...facts.map(([value, name]) => element("li", {}, element("b", {}, value), ` ${name}`))),
    contextStrip(run), lossChart(run),
    steps.length ? element("div", { class: steps.length > 12 ? "tall" : undefined }, sortable("switches", columns, steps)) : element("p", { class: "about" }, "No switch was found."));
}

// What was presented above what was found: a block for every task.
function contextStrip(run) {
  const tasks = run.detector.tasks, first = new Map();
  for (const task of tasks) if (!first.has(task.context)) first.set(task.context, task.identity);
  const hue = { identity: task => task.identity, context: task => first.get(task.context) };
  const width = pageWidth(), left = 92, each = (width - left) / Math.max(1, tasks.length);
  const root = drawn("svg", { viewBox: `0 0 ${width} 66`, width, height: 66, role: "img", "aria-label": "tasks presented and contexts found" });
  [["presented", "identity", 4], ["found", "context", 36]].forEach(([title, key, y]) => {
    root.append(drawn("text", { class: "name", x: 0, y: y + 16 }, title));
    tasks.forEach((task, k) => {
      const block = drawn("rect", { x: left + k * each, y, width: Math.max(1, each - 2), height: 24, rx: 3, style: `fill: ${ink(FACTS.palette[hue[key](task) % FACTS.palette.length])}` });
      hinting(block, () => `task ${k + 1}, ${run.tasks[k]}\nis number ${task.identity + 1}, ended in context ${task.context + 1}`);
      root.append(block);
      if (each > 22) root.append(drawn("text", { class: "on", x: left + (k + 0.5) * each - 1, y: y + 16, "text-anchor": "middle" }, task[key] + 1));
    });
  });
  return figure("Tasks and contexts", root, "A block is a task, in order. A context has the colour of the first task that ended in it: where the colours differ, a task was taken for another.");
}

// The loss of batches before they were learned, task after task; those that were suspected stand out.
function lossChart(run) {
  const { losses, switches } = run.detector;
  if (!losses.some(task => task.length)) return null;
  const starts = [0], points = [], doubted = [];
  for (const task of losses) {
    const begin = starts.at(-1);
    for (const [step, loss, suspected] of task) {
      points.push([begin + step, loss]);
      if (suspected) doubted.push([begin + step, loss]);
    }
    starts.push(begin + 1 + task.reduce((most, l) => Math.max(most, l[0]), 0));
  }
  const highest = points.map(p => p[1]).sort((a, b) => a - b)[Math.floor(0.995 * (points.length - 1))] || 1;
  const below = list => list.map(([step, loss]) => [step, Math.min(loss, highest)]);
  const series = [
    { name: "loss", colour: FACTS.palette[0], points: below(points), thin: true },
    { name: "suspected", colour: FACTS.palette[1], points: below(doubted), loose: true },
    { name: "switch found", colour: FACTS.palette[2], points: switches.map(s => [starts[s.task] + s.step, highest]), loose: true },
  ];
  const root = chart(series, { x: "step", y: "loss", low: 0, high: highest, format: (v, gap) => v.toFixed(gap ? digitsFor(gap) : 3), marks: starts.slice(1, -1).map(at => ({ at })), width: pageWidth(), labels: false });
  return figure("Losses, suspicions, switches", element("div", {}, root, legend(series, root)), "Losses of batches before they were learned. Dotted: a new task began. Suspected batches wait until it is clear where they belong.");
}
