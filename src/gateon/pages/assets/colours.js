// Colours: dark is much on a light page, and bright is much on a dark one.

const SEQUENTIAL = {
  light: ["#f7f0e6", "#d5e5d9", "#90cac3", "#459fb4", "#226a9c", "#1b3c70"],
  dark: ["#2c2833", "#28425a", "#1f6883", "#2f959f", "#6cc6a8", "#d6f5c4"],
};
const DIVERGING = {
  light: ["#9c3400", "#df7f3e", "#f4d8c2", "#eceef1", "#c0dbec", "#559dcb", "#0a5a97"],
  dark: ["#ffa366", "#c4642c", "#593a2d", "#262d38", "#274a66", "#3f86b8", "#94d0f7"],
};

let shade = "light"; // set with the theme: asking the page for every cell takes long
const theme = () => shade;
const style = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
// A colour of the palette, lighter on a dark page.
const ink = colour => `color-mix(in oklab, ${colour}, white var(--lift))`;

function parts(colour) {
  return [1, 3, 5].map(i => parseInt(colour.slice(i, i + 2), 16));
}

function mixed(stops, share) {
  const at = Math.max(0, Math.min(1, share)) * (stops.length - 1), low = Math.floor(at);
  const [from, to] = [parts(stops[low]), parts(stops[Math.min(low + 1, stops.length - 1)])];
  return from.map((value, i) => Math.round(value + (at - low) * (to[i] - value)));
}

const ramps = new Map();
function ramp(stops) {
  if (!ramps.has(stops)) ramps.set(stops, Array.from({ length: 256 }, (_, n) => mixed(stops, n / 255)));
  return ramps.get(stops);
}

const scaled = (stops, low, high) => value => value == null ? null
  : ramp(stops[theme()])[Math.round(255 * Math.max(0, Math.min(1, (value - low) / ((high - low) || 1))))];
const onto = ([r, g, b]) => 0.3 * r + 0.6 * g + 0.1 * b > 140 ? "#14161a" : "#ffffff";

// A table of 256 colours, for pictures of many numbers; the last stands for what was not measured.
function table256(stops) {
  const found = new Uint8ClampedArray(256 * 4);
  for (let n = 0; n <= 250; n++) found.set([...mixed(stops[theme()], n / 250), 255], 4 * n);
  found.set([...parts(style("--empty")), 255], 4 * 255);
  return found;
}

// The scale beside a picture.
function scaleBar(stops, low, high) {
  const bar = element("i");
  const paint = () => { bar.style.background = `linear-gradient(to right, ${stops[theme()].join(", ")})`; };
  repaint.push(paint);
  paint();
  return element("span", { class: "scale" }, low, bar, high);
}

// Bytes in base64 as numbers; 255 stands for NaN.
function unpacked(text) {
  const raw = atob(text), found = new Uint8Array(raw.length);
  for (let n = 0; n < raw.length; n++) found[n] = raw.charCodeAt(n);
  return found;
}
const decoded = (byte, low, high) => byte === 255 ? null : low + (high - low) * byte / 250;
