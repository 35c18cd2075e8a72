// A served page asks its server what is new, and is drawn again with the reader's choices kept.

let version = FACTS.version;
const light = element("span", { class: "live", role: "status" }, "live");

async function look() {
  try {
    const found = await (await fetch("version")).json();
    light.textContent = "live";
    light.classList.remove("lost");
    if (found !== version) {
      FACTS = await (await fetch("facts")).json();
      version = FACTS.version;
      draw();
    }
  } catch {
    light.textContent = "no longer served";
    light.classList.add("lost");
  }
  document.querySelector("nav .theme").before(light);
  setTimeout(look, 1500);
}
look();
