// One run: what is remembered, forgotten, still free, and what it cost

function retained(run) {
  if (!run.accuracy.length) return null;
  const names = numbered(run.tasks), learned = run.tasks.map((_, k) => k);
  const [canvas, tools] = accuracyMatrix("matrix", run.accuracy, learned, { title: "after task", names }, { title: "accuracy on task", names });
  const many = run.tasks.length > 10;
  const series = run.tasks.map((name, j) => ({ name: `${j + 1} ${name}`, faint: many,
    colour: many ? `#${mixed(["#e0a458", "#b6567a", "#4c3b8f", "#1f6fa8"], j / (run.tasks.length - 1)).map(v => v.toString(16).padStart(2, "0")).join("")}` : FACTS.palette[j % FACTS.palette.length], dash: many ? 0 : Math.floor(j / FACTS.palette.length),
    points: run.accuracy.slice(j).map((row, n) => [j + n + 1, row[j]]) }));
  return section("retained", "Remembered", "What is remembered", "How well every task is still solved as others are learned after it.", side_by_side(
    figure("Accuracy, task by task", canvas, "A column is a task: read it downwards to see whether it stays. Hover for the numbers.", [tools]),
    run.accuracy.length > 1 ? figure("Every task over time", chart(series, { x: "tasks learned", y: "accuracy, %", labels: !many, height: 360, tell: v => `${percent(v)} %` }), `Each line is a task, from when it was learned${many ? "; the first ones are orange, the last ones blue" : ""}. A level line was not forgotten.`) : null));
}

function forgetting(run) {
  const rows = run.forgetting, isolated = run.isolated;
  if (rows.length < 2) return null;
  const facts = [["right after learning, mean", mean(rows.map(r => r[1]))], ["at the end, mean", mean(rows.map(r => r[2]))], ["lost by the tasks before the last, mean", -mean(rows.slice(0, -1).map(r => r[2] - r[1]))]];
  if (isolated) facts.push(["learned alone, mean", mean(isolated)]);
  const sorted = rows.map(([task, then, now]) => ({ task, then, now, lost: then - now, gained: isolated ? then - isolated[task] : null }));
  const columns = [
    { title: "task", value: r => r.task, show: r => `${r.task + 1} ${shorter(run.tasks[r.task], 32)}` },
    { title: "just learned", best: undefined, value: r => r.then, show: r => percent(r.then) },
    { title: "at the end", value: r => r.now, show: r => percent(r.now) },
    { title: "lost", about: "points since it was learned", value: r => r.lost, show: r => lostBar(r.lost, sorted) },
    ...(isolated ? [{ title: "transfer", about: "just learned, against a network that learned this task alone", value: r => r.gained, show: r => signed(100 * r.gained, 2) }] : []),
  ];
  const summary = element("ul", { class: "sums" }, ...facts.map(([name, value]) => element("li", {}, element("b", {}, percent(value)), ` ${name}`)));
  return section("forgetting", "Forgotten", "What is forgotten, and what is gained", isolated ? "Backward transfer is what later tasks do to a task, forward transfer what earlier ones did." : "What later tasks did to each task. For forward transfer run it with --isolated.",
    summary, element("div", { class: rows.length > 12 ? "tall" : undefined }, sortable("forgetting", columns, sorted)));
}

const mean = values => values.reduce((a, b) => a + b, 0) / values.length;

function lostBar(lost, rows) {
  const most = Math.max(0.01, ...rows.map(r => Math.abs(r.lost)));
  return element("span", { class: `bar ${lost > 0 ? "lost" : "won"}` }, element("i", { style: `width: ${(Math.abs(lost) / most * 64).toFixed(1)}px` }), `${lost > 0 ? "−" : "+"}${percent(Math.abs(lost))}`);
}

function room(run) {
  if (!run.availability.length) return null;
  const sites = Object.keys(run.availability[0]), left = run.forecast;
  const lines = key => sites.map((site, n) => ({ name: `layer ${site}`, colour: FACTS.palette[n % FACTS.palette.length], dash: Math.floor(n / FACTS.palette.length),
    points: run.availability.map((at, k) => [k + 1, at[site]?.[key] ?? null]) }));
  const free = lines("room");
  if (left && left.tasks !== null && left.tasks > 0) { // the line that leads to a full layer
    const learned = run.availability.length, ahead = Math.min(left.tasks, 2 * learned);
    free.push({ name: "forecast", colour: "#8a8f99", dash: 1, points: [[learned, left.room], [learned + ahead, left.room - ahead * left.rate]] });
  }
  const says = left ? `Layer ${left.site} has the least room left, ${percent(left.room, 0)} %. ${left.tasks === null ? "The last tasks took none of it." : left.tasks === 0 ? "It counts as full." : `A task takes ${percent(left.rate, 1)} points of it, so about ${left.tasks} more like these fit; the forecast goes on as the later half of the tasks went.`}` : "";
  return section("room", "Room", "What is still free", `Availability of units or parameters, by layer: it falls where they prove relevant, and what is not available no longer changes. ${says}`,
    side_by_side(
      figure("Room left", chart(free, { x: "tasks learned", y: "mean availability, %", low: 0, high: 1 }), "1 minus this is taken."),
      figure("Frozen", chart(lines("frozen"), { x: "tasks learned", y: "share below 0.05, %", low: 0, high: 1 }), "Units or parameters that are as good as frozen.")));
}

function within(run) {
  if (!run.curves.some(curve => curve.length)) return null;
  const many = run.tasks.length > 10;
  const series = run.curves.map((points, j) => ({ name: `${j + 1} ${run.tasks[j]}`, faint: many, colour: FACTS.palette[j % FACTS.palette.length], points }));
  return section("within", "While learning", "While learning", "How fast each task is learned.", figure(null, chart(series, { x: "step of the task", y: "accuracy, %", width: pageWidth(), tell: v => `${percent(v)} %` })));
}

function cost(run) {
  if (!run.seconds.length) return null;
  const series = [["training", 0], ["measuring", 1]].map(([name, n]) => ({ name, colour: FACTS.palette[n ? 8 : 0], points: run.seconds.map((s, k) => [k + 1, s[n]]) }));
  const total = n => run.seconds.reduce((sum, s) => sum + s[n], 0);
  const facts = [[duration(total(0)), "of training"], [duration(total(1)), "of measuring"]];
  if (run.samples.some(Boolean)) facts.push([grouped(run.samples.reduce((a, b) => a + b, 0)), "training samples"]);
  if (run.bytes !== null) facts.push([bytes(run.bytes), "kept between tasks: the network, and what the method remembers"]);
  const opened = run.density.at(-1);
  if (opened) facts.push([`${percent(mean(Object.values(opened)), 0)} %`, "of the units at work in the last task"]);
  return section("cost", "Cost", "What it cost", "Time is that of the machine named below, and of whatever else it did meanwhile.",
    element("ul", { class: "sums" }, ...facts.map(([value, name]) => element("li", {}, element("b", {}, value), ` ${name}`))),
    run.seconds.length > 1 ? figure(null, chart(series, { x: "task", y: "seconds", low: 0, high: Math.max(...run.seconds.flat()), format: (v, gap) => v.toFixed(gap ? digitsFor(gap) : 2), width: pageWidth(), height: 210 })) : null);
}

function made(run) {
  const where = run.environment ?? {};
  return section("settings", "How made", "How it was made", [run.folder, where.time ? `finished ${where.time.slice(0, 16).replace("T", " ")}` : "", where.commit ? `commit ${where.commit.slice(0, 12)}` : ""].filter(Boolean).join(" · "),
    run.command ? copyable(run.command) : element("p", { class: "about" }, "It was started from Python."),
    folded("Settings", ...Object.entries(run.settings).map(([name, values]) => element("div", {}, element("h3", {}, name), plain(values)))),
    folded("Versions, machine and data", plain({ ...where, data: run.data })));
}

function oneRun() {
  const parts = [retained, forgetting, room, rastered, gatesSection, detector, within, cost, made];
  const several = FACTS.runs.length > 1, place = element("div"), kept = repaint.length;
  let turn = 0;
  const begin = () => {
    const run = FACTS.runs[VIEW.get("run") ?? 0];
    repaint.length = kept;
    place.replaceChildren(...[run.note ? element("p", { class: "note" }, run.note) : null, several ? cards(run.findings) : null].filter(Boolean));
    return run;
  };
  const add = (part, run) => { const made = part(run); if (made) place.append(made); };
  // When another run is chosen, its sections follow one by one, so that the page answers meanwhile.
  const choose = () => {
    const mine = ++turn, left = [...parts];
    place.style.minHeight = `${place.offsetHeight}px`; // what is on the screen stays where it is
    const run = begin();
    const next = () => {
      if (mine !== turn || !place.isConnected) return;
      add(left.shift(), run);
      if (left.length) return setTimeout(next);
      place.style.minHeight = "";
      navigate();
      followReading();
    };
    setTimeout(next);
  };
  const choice = several ? element("div", { class: "choose", id: "runs" }, element("h2", {}, "One run in detail"), dropdown("run", "Run", FACTS.runs.map((run, n) => [n, run.name]), choose)) : null;
  const run = begin();
  parts.forEach(part => add(part, run));
  return element("div", {}, choice, place);
}
