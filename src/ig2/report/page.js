"use strict";
// The page of a report: the way from one input to another, and the address. After drawing.js and item.js.

const report = JSON.parse(document.getElementById("data").textContent);
const viewer = makeViewer({
  ...report, // its inputs, pictures and scale
  place: one("main"),
  fetchInput: (index) => readFile(report.files[index]),
  remember: (words) => history.replaceState(null, "", `#input-${viewer.state.key + 1}-${words}`),
  drawn: () => {
    markLink();
    drawCrossed();
  },
  complain,
});

const openInput = (index, chosen) => viewer.show(index, chosen).catch(complain);

function follow() {
  const wanted = /^#input-(\d+)/.exec(location.hash);
  if (!wanted && viewer.state.key !== null) return;
  const last = (report.files ?? report.inputs).length - 1;
  openInput(wanted ? clamp(Number(wanted[1]) - 1, 0, last) : 0, viewer.parse(location.hash));
}

function markLink() {
  const link = all("nav a")[viewer.state.key];
  if (!link || link.hasAttribute("aria-current")) return;
  for (const other of all("nav [aria-current]")) other.removeAttribute("aria-current");
  link.setAttribute("aria-current", "true");
  link.scrollIntoView({ block: "nearest", inline: "nearest" });
}

function complain(error) {
  const trouble = document.getElementById("trouble");
  const old = typeof DecompressionStream === "undefined";
  trouble.textContent = old
    ? "This browser is too old to unpack the scores: use one from 2023 or later."
    : `The scores could not be shown: ${error.message}`;
  trouble.hidden = false;
}

// -- the targets of one text ------------------------------------------------------------------------------------------

// Words × targets on one scale; all without signs where those of any are not to be believed.
function drawCrossed() {
  const grid = one(".crossed");
  if (!grid) return;
  const { state } = viewer;
  const views = report.inputs.map(({ methods }) => methods[Math.min(state.method, methods.length - 1)]);
  const mode = state.mode ?? (views.some(isSignless) ? "magnitude" : "signed");
  const largest = Math.max(...views.flatMap(({ scores }) => scores.map(Math.abs))) || 1;
  const places = 2 - Math.floor(Math.log10(largest)); // as many for all, so that they stand below each other
  const plain = (value) => (places >= 0 && places < 6 ? value.toFixed(places).replace("-", "−") : number(value));
  const said = (value) => (mode === "signed" ? (value > 0 ? "+" : "") + plain(value) : plain(Math.abs(value)));
  const cell = (value, column) => {
    const share = Math.abs(value) / largest;
    const chosen = column === state.key ? " chosen" : "";
    const made = make("td", { class: `${sideOf(value, mode)}${share < 0.01 ? " weak" : ""}${chosen}` }, value ? said(value) : "0");
    made.style.setProperty("--strength", (share * ink(state.opacity / 100)).toFixed(3));
    return made;
  };
  one("tbody", grid).replaceChildren(
    ...report.inputs[0].view.words.map((word, i) =>
      make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, ellipsis(word))), ...views.map(({ scores }, column) => cell(scores[i], column))),
    ),
  );
  one(".shown", grid).textContent =
    (mode === "signed" ? "Red speaks for a token, blue against it; " : "Strength without signs; ") +
    `one scale for all, which ends at ${number(largest)}.`;
}

// -- going from one to another ----------------------------------------------------------------------------------------

for (const image of all("nav img[data-picture]")) image.src = report.pictures[image.dataset.picture];

const filter = one(".filter input");
if (filter) {
  const entries = all("nav li").map((item) => [item, `${one("a", item).title} ${one(".said", item).textContent}`.toLowerCase()]);
  const links = () => all("nav li:not([hidden]) a");
  const narrow = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const [item, text] of entries) item.hidden = !words.every((word) => text.includes(word));
    one(".filter output").textContent = words.length ? `${links().length} of ${entries.length}` : "";
  };
  filter.addEventListener("input", narrow);
  one("nav.inputs").addEventListener("keydown", (event) => {
    const at = links().indexOf(document.activeElement); // −1 in the filter
    const moves = {
      ArrowDown: at + 1,
      ArrowUp: at - 1,
      ...(event.target === filter ? { Enter: 0 } : { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: Infinity }),
    };
    const to = pick(event, moves);
    if (to < 0) filter.focus();
    else if (to !== undefined) links()[Math.min(to, links().length - 1)]?.focus();
    if (event.key === "Enter" && event.target === filter) links()[0]?.click();
    if (event.key === "Escape" && event.target === filter) {
      filter.value = "";
      narrow();
    }
  });
  addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target.matches("input, textarea")) return;
    event.preventDefault();
    filter.focus();
  });
  narrow(); // a browser that goes back keeps what was typed
}

one(".crossed tbody")?.addEventListener("click", ({ target }) => {
  const column = target.closest("td")?.cellIndex;
  if (column) openInput(column - 1); // the first has the words
});

one(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address stays that of what is shown
  one("main").focus();
});

addEventListener("hashchange", follow);
follow();
