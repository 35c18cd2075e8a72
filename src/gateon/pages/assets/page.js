// The page: header, answers first, sections, and a way to each of them

const PARTS = { runs: () => [comparison(), oneRun()], living: () => living(), tables: () => [reproduced()], nothing: () => [] };
const media = matchMedia("(prefers-color-scheme: dark)");

function setTheme(name) {
  document.documentElement.dataset.theme = shade = name;
  repaint.forEach(paint => paint());
}
const wantedTheme = () => VIEW.get("theme") ?? (media.matches ? "dark" : "light");

function navigate() {
  const links = [...document.querySelectorAll("main section[id]")].map(part => element("a", { href: `#${part.id}`, "data-to": part.id }, part.dataset.short));
  document.querySelector("nav div").replaceChildren(...links);
}

// The section that is being read, in the navigation.
function followReading() {
  let current = null;
  for (const part of document.querySelectorAll("main section[id]")) if (part.getBoundingClientRect().top < 140) current = part.id;
  for (const link of document.querySelectorAll("nav a")) link.classList.toggle("here", link.dataset.to === current);
}

function draw() {
  const [x, y] = [scrollX, scrollY];
  repaint.length = 0;
  document.title = `${FACTS.title} - gateon`;
  const findings = FACTS.findings?.length ? FACTS.findings : FACTS.kind === "runs" && FACTS.runs.length === 1 ? FACTS.runs[0].findings : [];
  const top = element("div", { id: "findings" });
  const main = element("main", {}, ...(PARTS[FACTS.kind] ?? PARTS.nothing)().filter(Boolean));
  document.body.replaceChildren(
    element("nav", {}, element("b", {}, "gateon"), element("div"), element("button", { class: "theme", "aria-label": "light or dark", title: "light or dark", onclick: () => {
      VIEW.set("theme", theme() === "dark" ? "light" : "dark");
      setTheme(wantedTheme());
    } }, "◐")),
    element("header", {}, element("h1", {}, FACTS.title), element("p", { class: "soft" }, FACTS.about),
      FACTS.problem ? element("p", { class: "note" }, FACTS.problem) : null,
      FACTS.waiting?.length ? element("p", { class: "note going" }, `Not finished: ${FACTS.waiting.join("; ")}.`) : null, top),
    main, tip);
  if (findings.length) top.append(cards(findings));
  navigate();
  followReading();
  scrollTo(x, y);
}

document.documentElement.dataset.theme = shade = wantedTheme();
draw();
media.addEventListener("change", () => setTheme(wantedTheme()));
addEventListener("scroll", followReading, { passive: true });
let width = innerWidth, waiting;
addEventListener("resize", () => { // heights change on phones whenever a bar hides
  clearTimeout(waiting);
  waiting = setTimeout(() => { if (innerWidth !== width) { width = innerWidth; draw(); } }, 150);
});
addEventListener("beforeprint", () => {
  document.documentElement.classList.add("print");
  setTheme("light");
  for (const part of document.querySelectorAll("details")) { part.dataset.was = part.open; part.open = true; }
});
addEventListener("afterprint", () => {
  document.documentElement.classList.remove("print");
  setTheme(wantedTheme());
  for (const part of document.querySelectorAll("details")) part.open = part.dataset.was === "true";
});
