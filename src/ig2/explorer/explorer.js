"use strict";
// The explorer. Before this come drawing.js and item.js of the report, which draw maps and the page of an item, and data.js, which
// answers its questions: server.js asks the server, files.js the files of an exported site.

const ROW = 84; // pixels of a row of the list
const AHEAD = 8; // rows that are drawn before they are in sight: a quarter of a second of scrolling
const CHUNK = 40; // rows that are asked for at once
const MOST_CHUNKS = 60; // that are kept
const TALLEST = 15e6; // pixels; browsers lose count beyond
const MOST_INPUTS = 200; // of a report, or figures
const PALETTE = ["#3b7fc4", "#e07b39", "#4a9c5d", "#c2478c", "#8d6cc9", "#b0912c", "#3ba5a8", "#a5524a", "#d1a5c0", "#5b6fd6", "#84a83f", "#7d8794"];
const $ = (id) => document.getElementById(id);
const fields = ["where", "text", "sort", "ranges", "cell", "brush", "cluster", "layout"];
const empty = { view: "list", item: "", at: "", try: "", colour: "cluster", ...Object.fromEntries(fields.map((name) => [name, ""])) };
const state = { ...empty };
let stores = null; // what the server says it has
let cursor = 0; // the row that the keyboard is at
let total = 0; // rows of the list

// -- the address ------------------------------------------------------------------------------------------------------

function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  for (const name of Object.keys(empty)) state[name] = given.get(name) ?? empty[name];
  if (!["list", "map", "clusters"].includes(state.view)) state.view = "list";
  if (!["cluster", "class", "right"].includes(state.colour)) state.colour = "cluster";
  if (state.layout !== "umap") state.layout = "";
}

// The label and the prediction of a cell; a link may have been mangled on its way, and then the server says so.
function readCell() {
  try {
    return JSON.parse(state.cell);
  } catch {
    return [state.cell];
  }
}

function writeAddress(push = false) {
  const chosen = new URLSearchParams(Object.entries(state).filter(([name, value]) => value !== empty[name]));
  const hash = `#${chosen}`;
  if (hash === (location.hash || "#")) return;
  history[push ? "pushState" : "replaceState"](null, "", hash);
}

const question = (extra = {}) =>
  new URLSearchParams([...fields.map((name) => [name, state[name]]), ...Object.entries(extra)].filter(([, value]) => value !== ""));

// -- trouble ----------------------------------------------------------------------------------------------------------

function complain(error) {
  if (error.name === "AbortError") return;
  $("trouble").textContent = error.message;
  $("trouble").hidden = false;
}

// -- everything that follows from the filters -------------------------------------------------------------------------

let asking = new AbortController();
async function refresh() {
  asking.abort();
  asking = new AbortController();
  const { signal } = asking;
  $("trouble").hidden = true;
  showFields();
  try {
    const first = loadChunk(0, signal); // on its way while the overview is counted
    first.catch(() => {}); // the overview fails as well, and is complained of
    const overview = await ask(`/api/overview?${question()}`, signal);
    total = overview.selected;
    drawOverview(overview);
    forgetRows();
    chunks.set(0, first);
    cursor = 0;
    if (state.item) await findCursor(signal);
    drawList(true);
    if (state.view !== "list") await drawMap(signal);
  } catch (error) {
    complain(error);
  }
  if (!signal.aborted) document.body.dataset.ready = String(question()); // which filters the page shows by now
}

async function findCursor(signal) {
  try {
    const { place } = await ask(`/api/place?${question({ id: state.item })}`, signal);
    if (place !== null) cursor = place;
  } catch (error) {
    // a link to an item that is not here
    if (!signal.aborted && !error.isLost) Object.assign(state, { item: "", at: "", try: "" });
    throw error;
  }
}

function choose(changes, push = false) {
  Object.assign(state, changes);
  writeAddress(push);
  refresh();
}

function showFields() {
  for (const name of ["where", "text"]) if (document.activeElement !== $(name)) $(name).value = state[name];
  $("sort").value = state.sort.replace(/^-/, "");
  $("down").checked = state.sort.startsWith("-");
  $("colour").value = state.colour;
  $("layout").value = state.layout;
  const chips = [];
  const chip = (words, changes) => {
    const button = make("button", { type: "button", "aria-label": `Remove the filter ${words}` }, make("bdi", {}, words));
    button.addEventListener("click", () => choose(changes));
    chips.push(make("li", {}, button));
  };
  for (const [name, low, high] of readRanges()) {
    chip(`${nameColumn(name)} ${number(low)} to ${number(high)}`, { ranges: joinRanges(readRanges().filter((range) => range[0] !== name)) });
  }
  if (state.cell) chip([readCell()].flat().join(" predicted as "), { cell: "" });
  if (state.brush) chip("part of the map", { brush: "" });
  if (state.cluster) chip(`cluster ${Number(state.cluster) + 1}`, { cluster: "" });
  $("chips").replaceChildren(...chips);
}

// A column of the second store ends in _2: here it has the store's name.
function nameColumn(name) {
  const [, own, store] = name.match(/^(.+)_([2-4])$/) ?? [];
  if (store <= stores.stores.length) return `${nameColumn(own)} · ${stores.stores[store - 1].name}`;
  return name.replaceAll("_", " ");
}
const readRanges = () =>
  state.ranges.split(",").filter(Boolean).map((piece) => piece.split(":")).map(([name, low, high]) => [name, Number(low), Number(high)]);
const joinRanges = (ranges) => ranges.map((range) => range.join(":")).join(",");

function setRange(name, low, high) {
  const others = readRanges().filter((range) => range[0] !== name);
  choose({ ranges: joinRanges(low === null ? others : [...others, [name, Math.min(low, high), Math.max(low, high)]]) });
}

// -- the overview -----------------------------------------------------------------------------------------------------

const whole = (value) => value.toLocaleString("en");
const countItems = (value) => count(value, "item").replace(String(value), whole(value));

function drawOverview(overview) {
  const { selected, failed, labelled, right } = overview;
  $("count").textContent = selected === overview.total ? countItems(selected) : `${whole(selected)} of ${whole(overview.total)} items`;
  for (const button of all("button", $("exports"))) {
    const isTooMuch = ["html", "zip"].includes(button.dataset.format) && selected > MOST_INPUTS;
    button.disabled = !selected || isTooMuch;
    button.title = isTooMuch ? `${button.textContent} of ${MOST_INPUTS} items at most: choose fewer` : `The ${whole(selected)} items as a file`;
  }
  const fact = (name, value) => make("div", {}, make("dt", {}, name), make("dd", {}, value));
  $("counts").replaceChildren(
    fact("Items", whole(selected)),
    ...(labelled ? [fact("Right", percent(right / labelled)), fact("Wrong", whole(labelled - right))] : []),
    ...(failed ? [fact("Failed", whole(failed))] : []),
  );
  const place = $("distributions");
  const before = document.activeElement?.dataset?.limit;
  place.replaceChildren(...overview.distributions.map(drawDistribution));
  if (before) one(`[data-limit="${before}"]`, place)?.focus();
  drawConfusion(overview.confusion);
}

function drawDistribution({ name, low, high, least, most, all: everything, selected }) {
  const [width, height] = [240, 56];
  const tallest = Math.max(1, ...everything);
  const bar = width / everything.length;
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  const column = (kind, times, i, top) => {
    const tall = times ? Math.max(1.5, (Math.sqrt(times) / Math.sqrt(top)) * height) : 0;
    return draw("rect", { class: kind, x: i * bar + 0.5, y: height - tall, width: bar - 1, height: tall });
  };
  svg.append(...everything.map((times, i) => column("all", times, i, tallest)), ...selected.map((times, i) => column("selected", times, i, tallest)));
  const range = readRanges().find((item) => item[0] === name);
  const at = (value) => clamp(((value - low) / (high - low)) * width, 0, width);
  const shade = draw("rect", { class: "range", y: 0, height, x: range ? at(range[1]) : 0, width: range ? Math.max(2, at(range[2]) - at(range[1])) : 0 });
  svg.append(shade);
  // the first and the last bar take what lies farther out
  const value = (event) => {
    const box = svg.getBoundingClientRect();
    const share = clamp((event.clientX - box.left) / box.width, 0, 1);
    return share === 0 ? least : share === 1 ? most : low + share * (high - low);
  };
  let from = null;
  svg.addEventListener("pointerdown", (event) => {
    from = value(event);
    svg.setPointerCapture(event.pointerId);
  });
  svg.addEventListener("pointermove", (event) => {
    if (from === null) return;
    const [start, end] = [at(from), at(value(event))];
    furnish(shade, { x: Math.min(start, end), width: Math.abs(end - start) });
  });
  svg.addEventListener("pointerup", (event) => {
    const to = value(event);
    const wide = from !== null && Math.abs(at(to) - at(from)) > 3;
    if (wide) setRange(name, short(from), short(to));
    else if (range) setRange(name, null);
    from = null;
  });
  const limit = (which, words) => {
    const box = make("input", { type: "number", step: "any", "aria-label": `${nameColumn(name)} ${words}`, "data-limit": `${name}:${which}`, placeholder: number(which ? most : least) });
    if (range) box.value = short(range[1 + which]);
    box.addEventListener("change", () => {
      const ends = [range ? range[1] : least, range ? range[2] : most];
      ends[which] = box.value === "" ? [least, most][which] : Number(box.value);
      if (ends[0] <= least && ends[1] >= most) setRange(name, null);
      else setRange(name, ...ends);
    });
    return box;
  };
  const caption = make("figcaption", {}, make("b", {}, nameColumn(name)), make("span", {}, `${number(least)} to ${number(most)}`));
  return make("figure", { class: "distribution" }, caption, svg, make("div", { class: "limits" }, limit(0, "from"), limit(1, "to")));
}
const short = (value) => Number(value.toPrecision(6));

function drawConfusion(confusion) {
  $("confusion").hidden = !confusion;
  if (!confusion) return;
  const { classes, counts } = confusion;
  const cells = counts.map((row, i) =>
    row.map((times, j) => {
      const share = times / Math.max(1, row.reduce((sum, other) => sum + other, 0));
      const named = !confusion.others || Math.max(i, j) < classes.length - 1;
      const cell = JSON.stringify([classes[i], classes[j]]);
      const words = `${classes[i]} predicted as ${classes[j]}: ${times}`;
      const button = make("button", { type: "button", class: `${i === j ? "right" : "wrong"}${share > 0.6 ? " strong" : ""}`, "aria-label": words, title: words, "aria-pressed": String(state.cell === cell) }, times ? whole(times) : "");
      button.style.setProperty("--share", (0.9 * share).toFixed(3));
      button.disabled = !times || !named;
      button.addEventListener("click", () => choose({ cell: state.cell === cell ? "" : cell }));
      return make("td", {}, button);
    }),
  );
  const head = (name, scope) => make("th", { scope, title: name }, make("bdi", {}, name));
  const table = make(
    "table", {},
    make("thead", {}, make("tr", {}, make("td"), ...classes.map((name) => head(name, "col")))),
    make("tbody", {}, ...cells.map((row, i) => make("tr", {}, head(classes[i], "row"), ...row))),
  );
  // as wide as its names and its largest number need; beyond its column it scrolls
  const longest = Math.max(...classes.map((name) => name.length));
  table.classList.toggle("upright", longest < 3); // an 8 on its side is another sign
  const names = Math.min(3.5, 0.5 + 0.45 * longest);
  one("thead td", table).style.width = `${names}rem`;
  table.style.minWidth = `${names + classes.length * (0.25 + 0.42 * whole(Math.max(...counts.flat())).length)}rem`;
  $("confusion").replaceChildren(make("h2", {}, "Labels and predictions"), make("p", { class: "hint" }, "Rows are labels, columns predictions."), make("div", { class: "scroll" }, table));
}

// -- the list ---------------------------------------------------------------------------------------------------------

let chunks = new Map(); // of rows, by their number, the one asked for last at the end
let lastFirst = 0; // the first row in sight when the list was drawn last
const shownRows = new Map(); // elements, by their place
function forgetRows() {
  chunks = new Map();
  for (const element of shownRows.values()) element.remove();
  shownRows.clear();
  $("list").scrollTop = 0;
}

const height = () => Math.min(total * ROW, TALLEST);
// a list too tall for the browser is scrolled in proportion
function firstRow() {
  const box = $("list");
  if (total * ROW <= TALLEST) return Math.floor(box.scrollTop / ROW);
  return Math.floor((box.scrollTop / (height() - box.clientHeight)) * (total - box.clientHeight / ROW));
}
function topOf(place) {
  if (total * ROW <= TALLEST) return place * ROW;
  return $("list").scrollTop + (place - firstRow()) * ROW;
}

function drawList(scroll = false) {
  const box = $("list");
  $("spacer").style.height = `${height()}px`;
  if (scroll && cursor) showCursor(true);
  const first = Math.max(0, firstRow() - AHEAD);
  const last = Math.min(total - 1, firstRow() + Math.ceil(box.clientHeight / ROW) + AHEAD);
  for (const [place, element] of shownRows) {
    if (place >= first && place <= last) continue;
    element.remove();
    shownRows.delete(place);
  }
  for (let place = first; place <= last; place++) {
    if (!shownRows.has(place)) {
      const element = make("div", { class: "row", role: "option", id: `row-${place}`, "aria-setsize": total, "aria-posinset": place + 1, "aria-label": `Item ${place + 1}` });
      shownRows.set(place, element);
      $("spacer").append(element);
      fillRow(place, element).catch(complain);
    }
    shownRows.get(place).style.top = `${topOf(place)}px`;
  }
  // what comes next in the direction of scrolling, so that it is there when it is seen
  for (const chunk of total ? [1, 2].map((step) => Math.floor(first / CHUNK) + (first >= lastFirst ? step : -step)) : []) {
    if (chunk >= 0 && chunk * CHUNK < total) loadRows(chunk * CHUNK).catch(() => {}); // complained of when it is in sight
  }
  lastFirst = first;
  markCursor();
  one(".empty", box)?.remove();
  if (!total) box.append(make("p", { class: "empty" }, "No item matches all filters."));
}

const loadChunk = (chunk, signal) => ask(`/api/rows?${question({ start: chunk * CHUNK, count: CHUNK })}`, signal);
function loadRows(place) {
  const chunk = Math.floor(place / CHUNK);
  const loading = chunks.get(chunk) ?? loadChunk(chunk, asking.signal);
  chunks.delete(chunk); // and put at the end, as the one that was asked for last
  chunks.set(chunk, loading);
  if (chunks.size > MOST_CHUNKS) chunks.delete(chunks.keys().next().value);
  return loading.then(({ rows }) => rows[place - chunk * CHUNK]);
}

async function fillRow(place, element) {
  const kept = chunks;
  const row = await loadRows(place);
  if (kept !== chunks || !element.isConnected || !row) return;
  const several = row.maps.length > 1;
  const fact = (kind, ...words) => make("span", { class: kind }, ...words);
  const answer = row.right === 0 ? fact("wrong", make("bdi", {}, row.prediction), ", labelled ", make("bdi", {}, row.label ?? "")) : fact("", make("bdi", {}, row.prediction ?? row.target ?? ""));
  const facts = make("span", { class: "facts" }, make("bdi", { class: "identity", title: row.id }, row.id), ...(row.error ? [fact("wrong", make("bdi", {}, row.error))] : [answer]), ...(row.error || row.trust === null ? [] : [fact("soft", `trust ${percent(row.trust)}`)]), ...drawBadges(row));
  element.classList.toggle("failed", Boolean(row.error));
  element.setAttribute("aria-label", `${row.id}: ${row.error ?? row.prediction ?? ""}`);
  const maps = [...row.maps, ...(several && row.difference ? [row.difference] : [])];
  const images = maps.some((map) => isMap(map));
  const numbers = ["output", "relative_residual"].filter((name) => row[name] !== null && !row.error).map((name) => fact("", `${nameColumn(name)} `, make("b", {}, number(row[name]))));
  if (images) {
    element.replaceChildren(...(await drawThumbs(row, maps)), facts, make("span", { class: "numbers" }, ...numbers));
  } else {
    element.replaceChildren(facts, make("span", { class: "units" }, ...maps.map((map, i) => (map ? drawUnits(map, row, i) : make("span", { class: "line soft" }, "not in this store")))));
  }
  element.dataset.filled = "";
}

// What makes the values of any of the stores doubtful, in a line.
function drawBadges(row) {
  const poor = row.error ? [] : row.marks.flatMap((marks) => Object.values(marks)).filter(({ mark }) => mark === "poor");
  const words = [...new Set(poor.map(({ badge }) => badge))].join(", ");
  return words ? [make("span", { class: "poor", title: words }, words)] : [];
}

const isMap = (map) => map?.view === "picture" || map?.view === "curve"; // drawn on a canvas

async function drawThumbs(row, maps) {
  let picture = null;
  if (row.picture) {
    picture = new Image();
    picture.src = pictureAddress(row);
    await picture.decode().catch(() => (picture = null)); // a broken file: the map alone
  }
  const thumbs = [];
  if (picture) {
    picture.className = "thumb";
    picture.alt = "";
    thumbs.push(picture);
  }
  for (const [i, map] of maps.entries()) {
    const canvas = make("canvas", { class: "thumb", "aria-hidden": "true", width: 1, height: 1 });
    if (map) await paintMap(canvas, map, picture, i < row.maps.length && isSignless({ marks: row.marks[i] }));
    thumbs.push(canvas);
  }
  return thumbs;
}

async function paintMap(canvas, { view, scores }, picture, signless) {
  const map = await unpack(scores);
  const times = Math.max(1, Math.round(96 / Math.max(map.width, map.height)));
  const taller = view === "curve" ? Math.max(1, Math.round(map.width / map.height / 2)) : 1; // bands, of one row for each channel
  const [width, height] = picture ? [picture.naturalWidth, picture.naturalHeight] : [map.width * times, map.height * times * taller];
  paint(canvas, readPixels(picture, width, height), map, { limit: map.limit, mode: signless ? "magnitude" : "signed", opacity: picture ? 0.75 : 1, cutoff: 0 });
}

// Words or columns on a line, coloured by their values: [unit, cell, value, side].
function drawLine(units, strongest) {
  return units.flatMap(([unit, cell, value, side]) => {
    const word = make("span", { class: side, title: `${unit}: ${signed(value)}` }, make("bdi", {}, cell ? `${unit} ${cell}` : unit));
    word.style.setProperty("--strength", (ink(Math.abs(value)) / strongest).toFixed(3));
    return [word, " "];
  });
}

function drawUnits(map, row, which) {
  const isSigned = which >= row.maps.length || !isSignless({ marks: row.marks[which] });
  const units = map.units.map((unit, i) => [unit, map.cells[i], map.scores[i], sideOf(map.scores[i], isSigned ? "signed" : "magnitude")]);
  const store = which < row.maps.length ? stores.stores[which].name : "difference";
  const name = row.maps.length < 2 ? [] : [make("span", { class: "store" }, store)];
  return make("span", { class: "line" }, ...name, ...drawLine(units, map.strongest || 1), map.more ? `… ${whole(map.more)} more` : "");
}

function markCursor() {
  for (const [place, element] of shownRows) element.setAttribute("aria-selected", String(place === cursor));
  if (total) $("list").setAttribute("aria-activedescendant", `row-${cursor}`);
}

function showCursor(inTheMiddle = false) {
  const box = $("list");
  if (total * ROW > TALLEST) {
    box.scrollTop = (cursor / Math.max(1, total - box.clientHeight / ROW)) * (height() - box.clientHeight);
    return;
  }
  const isSeen = cursor * ROW >= box.scrollTop && (cursor + 1) * ROW <= box.scrollTop + box.clientHeight;
  if (inTheMiddle && !isSeen) box.scrollTop = (cursor + 0.5) * ROW - box.clientHeight / 2;
  else if (cursor * ROW < box.scrollTop) box.scrollTop = cursor * ROW;
  if ((cursor + 1) * ROW > box.scrollTop + box.clientHeight) box.scrollTop = (cursor + 1) * ROW - box.clientHeight;
}

let opening = 0;
function move(to, open) {
  if (!total) return;
  cursor = clamp(to, 0, total - 1);
  showCursor();
  drawList();
  if (!open) return;
  const turn = ++opening;
  // a key that is held down does not open every item on the way
  setTimeout(() => {
    if (turn === opening) loadRows(cursor).then((row) => row && turn === opening && openItem(row.id)).catch(complain);
  }, 60);
}

// -- the item ---------------------------------------------------------------------------------------------------------

function openItem(id, at = "") {
  const first = !state.item;
  Object.assign(state, { item: id, at });
  writeAddress(first);
  showItem();
}

function closeItem() {
  Object.assign(state, { item: "", at: "", try: "" });
  writeAddress(true);
  showItem();
  (state.view === "map" ? $("cloud") : $("list")).focus();
}

let shownItem = "";
function showItem() {
  $("detail").hidden = !state.item && !(stores?.whatif && state.try);
  if (stores?.whatif) whatIf.show();
  if (shownItem !== state.item) {
    shownItem = state.item;
    if (shownItem) loadItem(shownItem).catch((error) => {
      $("input").hidden = true; // another item's
      shownItem = ""; // so that it is tried again
      complain(error);
    });
  }
  drawList();
  if (state.view === "map") findSpot().then(paintCloud);
}

let details = []; // of the item: an input, or one for each store where their maps have no shape in common
let part = 0; // which of them is shown
const viewer = makeViewer({
  place: $("input"),
  fetchInput: (key) => details[part],
  remember: (words) => {
    state.at = [part ? `input-${part + 1}` : "", words === "method-1" ? "" : words].filter(Boolean).join("-"); // as it opens
    writeAddress();
  },
  complain,
});

async function loadItem(id) {
  const { inputs, why } = await ask(`/api/item?${new URLSearchParams({ id })}`);
  if (id !== state.item) return;
  details = inputs;
  $("why").replaceChildren("This item has no explanation: ", make("bdi", {}, why));
  $("why").hidden = inputs.length > 0;
  $("input").hidden = !inputs.length;
  const buttons = inputs.length < 2 ? [] : inputs.map(({ input }, number) => {
    const button = make("button", { type: "button" }, make("bdi", {}, input.name));
    button.addEventListener("click", () => showPart(number).catch(complain));
    return button;
  });
  $("parts").replaceChildren(...buttons);
  const asked = Number(/^input-(\d+)/.exec(state.at)?.[1] ?? 1) - 1;
  if (inputs.length) await showPart(clamp(asked, 0, inputs.length - 1), state.at);
  $("detail").dataset.loaded = id;
  $("trouble").hidden = true;
}

async function showPart(number, at = "") {
  part = number;
  all("button", $("parts")).forEach((button, i) => button.setAttribute("aria-pressed", String(i === part)));
  await viewer.show(`${part} ${state.item}`, at ? viewer.parse(at) : {});
}

// -- the map of all items ---------------------------------------------------------------------------------------------

let cloud = null; // the points, once they are there
let cloudLayout = ""; // by which layout
let chosenBits = null; // which of them fulfil the filters

async function loadCloud() {
  const { layout } = state;
  if (cloud && cloudLayout === layout) return cloud;
  const answer = await ask(`/api/map?${new URLSearchParams({ layout })}`);
  if (state.layout !== layout) return loadCloud(); // another one was chosen meanwhile
  if (answer.progress < 1) {
    $("map-hint").textContent = `The map is being made, once for this store: ${percent(answer.progress)}.`;
    await new Promise((resolve) => setTimeout(resolve, 300));
    return loadCloud();
  }
  cloudLayout = layout;
  if (answer.trouble) throw new Error(answer.trouble);
  const bytes = (text) => toBytes(text).buffer;
  cloud = answer.count
    ? { ...answer, x: new Uint16Array(bytes(answer.x)), y: new Uint16Array(bytes(answer.y)), there: new Uint8Array(bytes(answer.there)), cluster: new Uint8Array(bytes(answer.cluster)), class: new Uint16Array(bytes(answer.class)), right: new Int8Array(bytes(answer.right)) }
    : { count: 0 };
  return cloud;
}

async function drawMap(signal) {
  await loadCloud();
  if (state.view === "clusters") return drawClusters(signal);
  const { bits } = await ask(`/api/selection?${question()}`, signal);
  chosenBits = toBytes(bits);
  $("map-hint").textContent = cloud.count
    ? `Near each other where the model looks at the same things${cloud.explained === null ? "; distances between groups mean little" : `; the two directions have ${percent(cloud.explained)} of the variance`}. Drag to choose, click to open. With the keyboard: arrows move, with Shift they draw a box, Enter chooses it.`
    : "Fewer than three items have values, so there is no map.";
  await findSpot();
  paintCloud();
}

const isChosen = (i) => (chosenBits[i >> 3] >> (i & 7)) & 1;
const inset = 14;
const scale = (size) => (value) => inset + (value / 65535) * (size - 2 * inset);
const unscale = (size) => (place) => (place - inset) / (size - 2 * inset);

function colourOf(i) {
  if (state.colour === "right") return ["#8a8f98", "#c2571a", "#3b7fc4"][cloud.right[i] + 1];
  return PALETTE[cloud[state.colour][i] % PALETTE.length];
}

let spot = { item: "", at: null }; // the item that is open, and its place among all
async function findSpot() {
  const { item } = state;
  if (spot.item === item) return;
  spot = { item, at: null };
  // an item that is not there is complained of by its own page
  const { place } = item ? await ask(`/api/place?${new URLSearchParams({ id: item })}`).catch(() => ({ place: null })) : { place: null };
  if (spot.item === item) spot.at = place;
}

function paintCloud() {
  const canvas = $("cloud");
  if (!cloud?.count || !chosenBits || canvas.clientWidth === 0) return;
  const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio];
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  const [x, y] = [scale(width), scale(height)];
  const radius = clamp(60 / Math.sqrt(cloud.count), 1.5, 5);
  for (const kind of [0, 1]) {
    context.globalAlpha = kind ? 0.85 : 0.13;
    for (let i = 0; i < cloud.count; i++) {
      if (!cloud.there[i] || isChosen(i) !== kind) continue;
      context.fillStyle = colourOf(i);
      context.beginPath();
      context.arc(x(cloud.x[i]), y(cloud.y[i]), radius, 0, 7);
      context.fill();
    }
  }
  const { at } = spot;
  if (at !== null && cloud.there[at]) {
    context.globalAlpha = 1;
    context.strokeStyle = getComputedStyle(document.body).color;
    context.lineWidth = 2;
    context.beginPath();
    context.arc(x(cloud.x[at]), y(cloud.y[at]), radius + 4, 0, 7);
    context.stroke();
  }
  const names = { cluster: [...new Set(cloud.cluster)].sort((a, b) => a - b).map((k) => [PALETTE[k % PALETTE.length], `cluster ${k + 1}`]), class: cloud.classes.map((name, i) => [PALETTE[i % PALETTE.length], name || "none"]), right: [["#3b7fc4", "right"], ["#c2571a", "wrong"], ["#8a8f98", "no label"]].filter((_, i) => cloud.right.includes([1, 0, -1][i])) }[state.colour];
  $("key").replaceChildren(...names.map(([colour, name]) => {
    const dot = make("i");
    dot.style.background = colour;
    return make("li", {}, dot, make("bdi", {}, name));
  }));
  canvas.dataset.drawn = String(cloud.count);
}

const pen = { from: null, to: null };
function showBox() {
  $("box").hidden = !pen.from || !pen.to;
  if ($("box").hidden) return;
  const [left, right] = [pen.from.x, pen.to.x].sort((a, b) => a - b);
  const [top, bottom] = [pen.from.y, pen.to.y].sort((a, b) => a - b);
  Object.assign($("box").style, { left: `${left}px`, top: `${top}px`, width: `${right - left}px`, height: `${bottom - top}px` });
}
function applyBox() {
  const canvas = $("cloud");
  const [across, down] = [unscale(canvas.clientWidth), unscale(canvas.clientHeight)];
  const [left, right] = [pen.from.x, pen.to.x].sort((a, b) => a - b).map(across);
  const [top, bottom] = [pen.from.y, pen.to.y].sort((a, b) => a - b).map(down);
  dropBox();
  choose({ brush: [left, top, right, bottom].map((value) => value.toFixed(4)).join(",") });
}
function dropBox() {
  pen.from = pen.to = null;
  showBox();
}
async function openNearest(place) {
  const canvas = $("cloud");
  const [x, y] = [scale(canvas.clientWidth), scale(canvas.clientHeight)];
  let [best, nearest] = [15, -1]; // pixels
  for (let i = 0; i < cloud.count; i++) {
    if (!cloud.there[i]) continue;
    const far = Math.hypot(x(cloud.x[i]) - place.x, y(cloud.y[i]) - place.y);
    if (far < best) [best, nearest] = [far, i];
  }
  if (nearest >= 0) openItem((await ask(`/api/rows?${new URLSearchParams({ start: nearest, count: 1 })}`)).rows[0].id);
  else if (state.brush) choose({ brush: "" });
}

function watchCloud() {
  const canvas = $("cloud");
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return { x: clamp(event.clientX - box.left, 0, box.width), y: clamp(event.clientY - box.top, 0, box.height) };
  };
  canvas.addEventListener("pointerdown", (event) => {
    pen.from = at(event);
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (!pen.from || !event.buttons) return;
    pen.to = at(event);
    showBox();
  });
  canvas.addEventListener("pointerup", (event) => {
    if (!pen.from || !cloud?.count) return;
    pen.to = at(event);
    if (Math.hypot(pen.to.x - pen.from.x, pen.to.y - pen.from.y) > 5) return applyBox();
    const place = pen.to;
    dropBox();
    openNearest(place).catch(complain);
  });
  canvas.addEventListener("keydown", (event) => {
    const step = 16;
    const arrow = { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] }[event.key];
    if (arrow) {
      event.preventDefault();
      const middle = { x: canvas.clientWidth / 2, y: canvas.clientHeight / 2 };
      const now = pen.to ?? middle;
      pen.to = { x: clamp(now.x + arrow[0], 0, canvas.clientWidth), y: clamp(now.y + arrow[1], 0, canvas.clientHeight) };
      if (!event.shiftKey || !pen.from) pen.from = event.shiftKey ? now : pen.to;
      showBox();
    } else if (event.key === "Enter" && pen.to && cloud?.count) {
      event.preventDefault();
      if (pen.from.x !== pen.to.x || pen.from.y !== pen.to.y) applyBox();
      else openNearest(pen.to).catch(complain);
    } else if (event.key === "Escape" && pen.to) {
      event.stopPropagation();
      dropBox();
    }
  });
}

let clusters = null;
async function drawClusters(signal) {
  clusters ??= (await ask("/api/clusters", signal)).clusters;
  const cards = clusters.map(({ number: k, items, labelled, right, classes, typical, map, units }) => {
    const mean = map ? make("canvas", { class: "mean", role: "img", "aria-label": `Mean map of cluster ${k + 1}` }) : make("ol", { "aria-label": "Strongest" }, ...units.map(([name, share]) => {
      const bar = make("i");
      bar.style.width = `${(100 * share) / units[0][1]}%`;
      return make("li", {}, bar, make("bdi", {}, name));
    }));
    if (map) unpack(map).then((scores) => paint(mean, readPixels(null, 112, 112), { ...scores, smooth: true }, { limit: scores.limit, mode: "magnitude", opacity: 1, cutoff: 0 }));
    const said = classes.map(([name, times]) => `${name || "none"} ${percent(times / items)}`).join(", ");
    const button = make("button", { type: "button", "aria-pressed": String(state.cluster === String(k)) }, state.cluster === String(k) ? "Show all" : "Show these");
    button.addEventListener("click", () => choose({ cluster: state.cluster === String(k) ? "" : String(k) }));
    const text = make("div", { class: "text" }, make("h2", {}, `Cluster ${k + 1}`), make("p", {}, `${countItems(items)}${labelled ? `, ${percent(right / labelled)} right` : ""}`), make("p", { class: "hint" }, make("bdi", {}, said)), make("p", { class: "buttons" }, button));
    const few = make("div", { class: "typical" });
    for (const row of typical) {
      const inside = isMap(row.maps[0]) ? make("span", {}) : make("bdi", { class: "name" }, row.maps[0]?.view === "words" ? row.maps[0].units.join(" ") : row.id);
      if (isMap(row.maps[0])) drawThumbs({ ...row, maps: row.maps.slice(0, 1) }, row.maps.slice(0, 1)).then((thumbs) => inside.replaceChildren(thumbs.at(-1)));
      const open = make("button", { type: "button", "aria-label": `Open ${row.id}`, title: row.id }, inside);
      open.addEventListener("click", () => openItem(row.id));
      few.append(open);
    }
    return make("li", {}, make("div", { class: "cluster" }, mean, text), few);
  });
  $("clusters").replaceChildren(...(cards.length ? cards : [make("li", {}, "Fewer than three items have values.")]));
}

// -- views and keys ---------------------------------------------------------------------------------------------------

function showView() {
  for (const tab of all("#items [role=tab]")) {
    const isShown = tab.dataset.view === state.view;
    tab.setAttribute("aria-selected", String(isShown));
    tab.tabIndex = isShown ? 0 : -1;
    $(tab.getAttribute("aria-controls")).hidden = !isShown;
  }
  if (state.view === "list") drawList(true);
  else drawMap(asking.signal).catch(complain);
}

function chooseView(view) {
  state.view = view;
  writeAddress(true);
  showView();
}

function handleKey(event) {
  const typing = event.target.closest?.("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "Escape" && (state.item || state.try) && !typing) closeItem();
  if (typing) return;
  if (event.key === "/") {
    event.preventDefault();
    $("text").focus();
  } else if (event.key === "j") move(cursor + (state.item ? 1 : 0), true);
  else if (event.key === "k") move(cursor - 1, true);
}

function watch() {
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("where").addEventListener("change", () => choose({ where: $("where").value.trim() }));
  let waiting = 0;
  $("text").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => choose({ text: $("text").value.trim() }), 200);
  });
  const sort = () => choose({ sort: $("sort").value && ($("down").checked ? "-" : "") + $("sort").value });
  $("sort").addEventListener("change", sort);
  $("down").addEventListener("change", sort);
  $("colour").addEventListener("change", () => {
    state.colour = $("colour").value;
    writeAddress();
    paintCloud();
  });
  $("layout").addEventListener("change", () => choose({ layout: $("layout").value, brush: "" }));
  $("list").addEventListener("scroll", () => requestAnimationFrame(() => drawList()), { passive: true });
  $("list").addEventListener("click", (event) => {
    const row = event.target.closest(".row");
    if (row) move(Number(row.id.slice(4)), true);
  });
  $("list").addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor($("list").clientHeight / ROW) - 1);
    const to = pick(event, { ArrowDown: cursor + 1, ArrowUp: cursor - 1, PageDown: cursor + page, PageUp: cursor - page, Home: 0, End: total - 1, Enter: cursor });
    if (to !== undefined) move(to, event.key === "Enter" || Boolean(state.item));
  });
  $("back").addEventListener("click", () => move(cursor - 1, true));
  $("next").addEventListener("click", () => move(cursor + 1, true));
  $("close").addEventListener("click", closeItem);
  for (const tab of all("#items [role=tab]")) {
    tab.addEventListener("click", () => chooseView(tab.dataset.view));
    tab.addEventListener("keydown", (event) => {
      const tabs = all("#items [role=tab]");
      const from = tabs.indexOf(tab);
      const to = pick(event, { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: tabs.length - 1 });
      if (to === undefined) return;
      const next = tabs[(to + tabs.length) % tabs.length];
      next.focus();
      chooseView(next.dataset.view);
    });
  }
  for (const button of all("[data-format]")) button.hidden = !FORMATS.includes(button.dataset.format);
  for (const button of all("[data-format]")) button.addEventListener("click", () => download(button).catch(complain));
  one(".skip").addEventListener("click", (event) => {
    event.preventDefault();
    $("list").focus();
  });
  watchCloud();
  addEventListener("keydown", handleKey);
  addEventListener("resize", () => {
    drawList();
    if (state.view === "map") paintCloud();
  });
  addEventListener("popstate", follow);
  addEventListener("hashchange", follow);
}

async function download(button) {
  $("trouble").hidden = true;
  const [name, content] = await fetchExport(button.dataset.format, question());
  const url = URL.createObjectURL(content);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}

let followed = null;
function follow() {
  if (followed === location.hash) return;
  readAddress();
  followed = location.hash;
  refresh().then(() => {
    followed = null;
    showView();
    showItem();
  });
}

async function begin() {
  readAddress();
  watch();
  if (innerWidth < 960) $("overview").open = false;
  stores = await ask("/api/stores");
  const [first, ...others] = stores.stores;
  const names = stores.stores.map(({ name }) => name).join(" and ");
  document.title = `${names} · explorer`;
  $("title").replaceChildren(make("bdi", {}, names));
  $("about").textContent = [first.model, stores.stores.map(({ method }) => method).join(" and ")].filter(Boolean).join(" · ");
  $("items").classList.add(first.view);
  $("items").classList.toggle("several", others.length > 0);
  $("sort").append(...stores.columns.filter((name) => name !== "error").map((name) => make("option", { value: name }, nameColumn(name))));
  $("columns").append(...stores.columns.map((name) => make("option", { value: name })));
  $("layouts").hidden = !stores.layouts.includes("umap");
  const isImage = first.view === "picture";
  if (others.length && (isImage || first.view === "curve")) {
    const heads = [...(stores.pictures ? [""] : []), ...stores.stores.map(({ name }) => name), ...(others.length === 1 ? ["difference"] : [])];
    $("heads").replaceChildren(...heads.map((name) => make("span", { title: name }, name)));
  }
  if (isImage && !stores.pictures) $("list-hint").prepend(`The images are not in the store: start ig2 ${stores.of ? "export" : "serve"} with --source${first.source ? ` ${first.source}` : ""} to see them. `);
  if (stores.of > stores.shown) $("list-hint").prepend(`These are the first ${whole(stores.shown)} of ${whole(stores.of)} items. `);
  if (stores.whatif) whatIf.begin();
  await refresh();
  showView();
  showItem();
}
// once whatif.js is there too: the server may answer before it is
addEventListener("DOMContentLoaded", () => begin().catch(complain));
