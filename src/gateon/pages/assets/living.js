// A living model: its tasks, every lesson, what is at risk, the room left

const day = when => String(when ?? "").slice(0, 10);
const minute = when => String(when ?? "").slice(0, 16).replace("T", " ");
const share = value => value == null ? element("span", { class: "none" }, "–") : percent(value, 1);

function livingTasks() {
  const risky = new Map();
  for (const risk of FACTS.risks) if (risk.task) risky.set(risk.task, risk);
  const columns = [
    { title: "task", words: true, value: t => t.name, show: t => shorter(t.name, 40) },
    { title: "labels", value: t => t.labels.length, show: t => element("span", { title: t.labels.slice(0, 60).join(", ") }, t.labels.length) },
    { title: "rows", about: "learned so far", value: t => t.rows, show: t => grouped(t.rows) },
    { title: "learned", about: "the last time", value: t => t.learned, show: t => day(t.learned) },
    { title: "then", about: "accuracy on held-out rows right after it was learned last, task told", value: t => t.then, show: t => share(t.then) },
    { title: "now", about: "accuracy on the same rows today, task told", value: t => t.now, show: t => t.error == null ? share(t.now) : element("span", {}, percent(t.now, 1), element("small", { class: "pm" }, ` ± ${percent(t.error, 1)}`)) },
    { title: "not told", about: "accuracy today where the model finds the task itself", value: t => t.untold, show: t => share(t.untold) },
    { title: "held out", about: "rows it is measured on; ± is two standard errors of so many", value: t => t.held, show: t => grouped(t.held) },
    { title: "", words: true, value: t => risky.has(t.name) ? risky.get(t.name).head : "~", show: t => risky.has(t.name) ? element("span", { class: `chip ${risky.get(t.name).mood}` }, risky.get(t.name).head) : element("span", { class: "chip good" }, "kept") },
  ];
  return section("tasks", "Tasks", "Its tasks", "Accuracy in percent on rows that were never learned, right after the last lesson of each task and now.", sortable("tasks", columns, FACTS.tasks));
}

function riskList() {
  if (!FACTS.risks.length) return section("risks", "At risk", "What is at risk", "Nothing: every task is measured, none has lost more than its held-out rows can tell, and each is told from the others.");
  return section("risks", "At risk", "What is at risk", "Look at these first.", element("ul", { class: "risks" }, ...FACTS.risks.map(risk =>
    element("li", { class: risk.mood }, element("b", {}, risk.task ? `${risk.task}: ${risk.head}` : risk.head), element("span", {}, risk.says)))));
}

function lessonsOverTime() {
  const { lessons, tasks } = FACTS;
  if (!lessons.length) return null;
  const rows = lessons.map(lesson => lesson.now.map(value => value ?? null));
  const learned = tasks.map(task => lessons.findLastIndex(lesson => lesson.task === task.name));
  const began = tasks.map(task => lessons.findIndex(lesson => lesson.task === task.name));
  const shown = rows.map((row, k) => row.map((value, j) => k < began[j] ? undefined : value));
  const down = { title: "after lesson", names: lessons.map((l, k) => ({ number: String(k + 1), full: `${k + 1}, ${l.task}, ${minute(l.when)}` })), short: lessons.map((l, k) => `${k + 1} ${l.task}`) };
  const across = { title: "accuracy on task", names: numbered(tasks.map(t => t.name)) };
  const [canvas, tools] = accuracyMatrix("lessons matrix", shown, learned, down, across);
  const many = tasks.length > 10;
  const series = tasks.map((task, j) => ({ name: `${j + 1} ${task.name}`, colour: FACTS.palette[j % FACTS.palette.length], dash: Math.floor(j / FACTS.palette.length), faint: many && tasks.length > 18,
    points: rows.map((row, k) => [k + 1, row[j]]).filter((p, k) => k >= began[j]) }));
  return section("lessons", "Lessons", "Lesson by lesson", "After every lesson all tasks are measured again, with the task told.", side_by_side(
    figure("Accuracy on every task", canvas, "A row is a lesson, a column a task. Hover for the numbers.", [tools]),
    lessons.length > 1 ? figure("Every task over time", chart(series, { x: "lessons", y: "accuracy, %", height: 340, tell: v => `${percent(v, 1)} %` }), "A level line is a task that is kept.") : null));
}

function livingRoom() {
  const sites = Object.keys(FACTS.room);
  const series = sites.map((site, n) => ({ name: `layer ${site}`, colour: FACTS.palette[n % FACTS.palette.length], dash: Math.floor(n / FACTS.palette.length),
    points: [[0, 1], ...FACTS.lessons.map((lesson, k) => [k + 1, lesson.room[site] ?? null])] }));
  const known = FACTS.lessons.some(lesson => Object.keys(lesson.room).length);
  const now = sites.map(site => `layer ${site} ${percent(FACTS.room[site], 0)} %`).join(", ");
  const more = FACTS.more == null ? "" : ` About ${FACTS.more} more ${FACTS.more === 1 ? "task" : "tasks"} like these will fit, if each takes as large a share of what it finds.`;
  return section("room", "Room", "Room left", `Left now: ${now}.${more} It does not fill up suddenly: later tasks make do with what others learned.`,
    known ? figure(null, chart(series, { x: "lessons", y: "mean availability, %", low: 0, high: 1, width: pageWidth(), height: 240 })) : null);
}

function livingHistory() {
  const columns = [
    { title: "version", value: l => l.version, show: l => l.version },
    { title: "when", value: l => l.when, show: l => minute(l.when) },
    { title: "task", words: true, value: l => l.task, show: l => element("span", {}, shorter(String(l.task), 30), l.new ? element("small", {}, " new") : null) },
    { title: "rows", value: l => l.rows, show: l => l.rows == null ? "–" : grouped(l.rows) },
    { title: "labels", value: l => l.labels, show: l => element("span", { title: (l.added ?? []).join(", ") }, l.labels, l.added?.length && !l.new ? element("small", {}, ` ${l.added.length} new`) : null) },
    { title: "accuracy", value: l => l.accuracy, show: l => share(l.accuracy) },
    { title: "epochs", value: l => l.epochs, show: l => l.epochs },
    { title: "took", value: l => l.seconds, show: l => l.seconds == null ? "–" : duration(l.seconds) },
    { title: "from", words: true, value: l => l.source, show: l => element("span", { title: `${l.source}\n${l.sha256 ?? ""}\n${l.decided ?? ""}` }, shorter(String(l.source ?? "").split("/").at(-1), 28)) },
  ];
  const versions = FACTS.versions.map(v => element("li", { class: v.current ? "current" : undefined }, element("b", {}, `version ${v.version}`), ` ${v.what}, ${minute(v.when)}`,
    v.current ? element("span", { class: "chip good" }, "current") : v.kept ? element("span", { class: "chip" }, "kept") : null));
  return section("history", "History", "What it learned when", "Lessons in force. Hover over a file for its sha256, and for how its task was found if nobody named it.", element("div", { class: columns.length > 30 ? "tall" : undefined }, sortable("history", columns, FACTS.lessons)),
    folded("Versions", element("ul", { class: "versions" }, ...versions)));
}

function livingMade() {
  return section("settings", "How made", "How it is made", FACTS.size, folded("Settings", plain(FACTS.settings)), folded("Columns it reads", plain(FACTS.columns)));
}

const living = () => [livingTasks(), riskList(), lessonsOverTime(), livingRoom(), gatesSection(FACTS), livingHistory(), livingMade()];
