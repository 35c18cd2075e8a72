// The page is drawn from one object of facts (see gateon/pages). All text of users goes through
// textContent, so that a name is never read as markup.
let FACTS = JSON.parse(document.getElementById("facts").textContent);
const VIEW = new Map(); // what the reader chose, by name: it outlasts drawing the page again
const repaint = []; // what to do when the theme changes

// With a minus that is as wide as a plus, and without one in front of zero.
const fixed = (value, digits) => value.toFixed(digits).replace(/^-(0\.?0*)$/, "$1").replace("-", "−");
const percent = (value, digits = 2) => value == null ? "–" : fixed(100 * value, digits);
const signed = (value, digits = 1) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;
const shorter = (text, most) => text.length > most ? `${text.slice(0, most - 1)}…` : text;
const grouped = number => number.toLocaleString("en");

function bytes(number) {
  for (const [unit, factor] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]])
    if (number >= factor) return `${(number / factor).toFixed(number < 10 * factor ? 1 : 0)} ${unit}`;
  return `${number} bytes`;
}

function duration(seconds) {
  if (seconds < 120) return `${seconds.toFixed(seconds < 10 ? 1 : 0)} s`;
  return seconds < 7200 ? `${(seconds / 60).toFixed(0)} min` : `${(seconds / 3600).toFixed(1)} h`;
}

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter(child => child != null));
  return made;
}

function drawn(name, attributes = {}, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) if (value != null) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
}

// Hints: one box that follows the pointer

const tip = element("div", { id: "tip", hidden: "", role: "status" });

function hint(event, text) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = text;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8))}px`;
}

function hinting(target, text) {
  target.addEventListener("pointermove", event => hint(event, text(event)));
  target.addEventListener("pointerleave", event => hint(event, ""));
}

// Parts of a page

// `short` is what the navigation calls it.
function section(id, short, title, about, ...children) {
  return element("section", { id, "data-short": short }, element("h2", {}, title), about ? element("p", { class: "about" }, about) : null, ...children);
}

function figure(title, content, caption, tools) {
  return element("figure", {},
    title || tools ? element("div", { class: "above" }, title ? element("h3", {}, title) : null, tools ? element("div", { class: "tools" }, tools) : null) : null,
    content, caption ? element("figcaption", {}, caption) : null);
}

const side_by_side = (...children) => element("div", { class: "two" }, ...children.filter(Boolean));

// What fits: the width of a figure that has the page for itself, or shares it with another.
const pageWidth = () => Math.min(document.documentElement.clientWidth - (innerWidth < 620 ? 32 : 56), 1120);
const halfWidth = () => pageWidth() >= 900 ? Math.floor((pageWidth() - 36) / 2) : pageWidth();

// Numbers stay with their units.
const unbroken = text => text.replace(/([\d±≈−]) (?=[\d%]|s\b|kB|MB|GB|points?\b|min\b)/g, "$1\u00a0");

function cards(findings) {
  const signs = { good: ["✓", "good news"], warn: ["!", "look at this"], bad: ["▼", "bad news"] };
  return element("div", { class: "cards" }, ...findings.map(one => {
    const sign = signs[one.mood], there = one.to && document.getElementById(one.to);
    return element(there === null ? "div" : "a", { class: `card ${one.mood}`, href: one.to ? `#${one.to}` : undefined },
      sign ? element("i", { "aria-label": sign[1] }, sign[0]) : null,
      element("b", { class: one.head.length > 16 ? "long" : undefined }, unbroken(one.head)), element("span", {}, unbroken(one.says)));
  }));
}

// Choices: the reader's are kept in VIEW under a name

function segmented(name, options, changed) {
  const values = options.map(([value]) => value);
  if (!values.includes(VIEW.get(name))) VIEW.set(name, values[0]);
  const buttons = options.map(([value, title, about]) => element("button", { "aria-pressed": String(VIEW.get(name) === value), title: about, onclick: () => {
    VIEW.set(name, value);
    buttons.forEach((other, n) => other.setAttribute("aria-pressed", String(values[n] === value)));
    changed(value);
  } }, title));
  return element("div", { class: "segmented", role: "group", "data-choice": name }, ...buttons);
}

function dropdown(name, label, options, changed) {
  const values = options.map(([value]) => String(value));
  if (!values.includes(VIEW.get(name))) VIEW.set(name, values[0]);
  const choice = element("select", { "aria-label": label, "data-choice": name, onchange: () => { VIEW.set(name, choice.value); changed(choice.value); } },
    ...options.map(([value, title]) => element("option", { value }, shorter(String(title), 70))));
  choice.value = VIEW.get(name);
  return element("label", {}, `${label} `, choice);
}

// Something that is drawn again whenever a choice changes.
function redrawn(draw) {
  const place = element("div");
  const again = () => place.replaceChildren(...[draw()].flat().filter(Boolean));
  return [place, again];
}

function copyable(text) {
  const button = element("button", { class: "copy", onclick: async () => {
    try { await navigator.clipboard.writeText(text); } catch {
      const range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      document.execCommand("copy");
    }
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  } }, "copy");
  const code = element("code", {}, text);
  return element("pre", {}, code, button);
}

function folded(title, ...children) {
  const made = element("details", { ontoggle: () => VIEW.set(`open ${title}`, made.open) }, element("summary", {}, title), ...children);
  made.open = VIEW.get(`open ${title}`) === true;
  return made;
}
