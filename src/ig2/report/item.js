"use strict";
// The page of an item, drawn the same in reports, the explorer and exported sites, from the same data. After drawing.js.

const KEPT = 10; // of the inputs that are fetched, those looked at last: unpacked, one takes megabytes

// Returns what draws inputs, one at a time, in a place. Inputs whose sections are there are in `inputs`; others are fetched by
// their keys, as an input with its section in HTML. What is chosen is told to `remember`, for an address.
function makeViewer({ place, inputs = [], pictures = [], fetchInput, scale = 0, remember = () => {}, drawn = () => {}, complain }) {
  const start = { mode: null, opacity: 70, threshold: 0, scale }; // what an address does not say
  const state = { key: null, method: 0, reference: null, ...start };
  const WIDEST = Math.max(16, scale); // pixels that the slider goes to
  const TINY = 0.01; // of the value: a smaller range around it is not shown

  // -- the inputs -------------------------------------------------------------------------------------------------------

  const items = new Map(); // by their keys: the input, its section and, once it is unpacked, its content
  inputs.forEach((input, key) => {
    const root = one(`section[data-input="${key}"]`, place);
    items.set(key, { input, root });
    watchSection(root);
  });

  async function find(key) {
    if (!items.has(key)) {
      const { input, html } = await fetchInput(key);
      const template = make("template");
      template.innerHTML = html;
      const root = template.content.firstElementChild;
      root.dataset.input = key;
      items.set(key, { input, root, isFetched: true });
      place.append(root);
      watchSection(root);
    }
    const item = items.get(key);
    items.delete(key); // and put at the end, as the one looked at last
    items.set(key, item);
    const fetched = [...items].filter(([, { isFetched }]) => isFetched);
    for (const [old, { root }] of fetched.slice(0, Math.max(0, fetched.length - KEPT))) {
      root.remove();
      items.delete(old);
    }
    return item;
  }

  const BAND = 48; // pixels of a channel's height, at least
  const isMap = (view) => view.name === "picture" || view.name === "curve"; // drawn on a canvas
  const scored = (value) => (mode() === "signed" ? signed(value) : number(Math.abs(value)));

  async function load(input) {
    const maps = await Promise.all(input.methods.map((method) => unpack(method.scores)));
    const references = await Promise.all(
      input.methods.map((method) => Promise.all(method.references.map((item) => item.scores && unpack(item.scores)))),
    );
    const { view } = input;
    if (!isMap(view)) return { maps, references };
    let picture = null;
    let { width, height } = maps[0];
    if (view.name === "curve") height *= Math.max(BAND, Math.round(150 / height));
    if (view.pixels !== null && view.name === "picture") {
      picture = new Image();
      picture.src = picturesOf(input)[view.pixels];
      await picture.decode();
      width = picture.naturalWidth;
      height = picture.naturalHeight;
    }
    // whole multiples keep every pixel of the map a square, and the picture smooth between them
    const times = Math.max(1, Math.round(720 / Math.max(width, height)));
    return {
      maps,
      references,
      width,
      height,
      small: readPixels(picture, width, height),
      large: readPixels(picture, width * times, height * times),
    };
  }

  // -- what is shown now ------------------------------------------------------------------------------------------------

  let shownItem = null;
  let content = null; // its maps and pictures, unpacked
  const section = () => shownItem.root;
  const input = () => shownItem.input;
  const method = () => input().methods[state.method];
  const picturesOf = (input) => input.pictures ?? pictures;

  // Maps are compared, so all of an input are shown in one mode: without signs where those of any are not to be believed.
  const chosen = () => method().references[state.reference]; // if one is
  const shownView = () => chosen() ?? method();
  const mode = () => state.mode ?? (input().methods.some(isSignless) || isSignless(shownView()) ? "magnitude" : "signed");

  const sigma = () => (input().view.name === "picture" ? state.scale : 0); // of the blur, in pixels of the input
  const blurred = () => `blurred by ${count(sigma(), "pixel")}`;
  const smoothNow = (map) => smooth(map, (sigma() * map.width) / content.width || 0);

  function current() {
    const whole = content.maps[state.method];
    const map = smoothNow(state.reference === null ? whole : content.references[state.method][state.reference]);
    const cutoff = state.threshold > 0 ? quantile(map.sorted, state.threshold / 100) : 0;
    // a reference's own map is coloured on the scale of the whole, so that the two can be compared
    return { map, cutoff, limit: smoothNow(whole).limit, mode: mode(), opacity: state.opacity / 100 };
  }

  function drawStage() {
    const { name } = input().view;
    const view = current();
    if (name === "words") drawWords(view);
    else if (name === "bars") drawBars(view);
    else paintOn(one(".stage canvas", section()), content.large, view.map, view);
    drawSpans(view);
    for (const radio of all("[type=radio]", section())) radio.checked = radio.value === mode();
    for (const slider of all("[data-control]", section())) {
      const name = slider.dataset.control;
      slider.value = state[name];
      const rest = 100 - state.threshold;
      const said =
        name === "opacity" ? `${state.opacity}\u00a0%`
        : name === "scale" ? (sigma() ? blurred() : "single pixels")
        : state.threshold === 0 ? "everything shown"
        : rest === 0 ? "the strongest alone"
        : `strongest ${rest}\u00a0%, from ${number(view.cutoff)}`;
      one("output", slider.parentElement).textContent = said;
      slider.setAttribute("aria-valuetext", said);
    }
  }

  function paintOn(canvas, base, map, look, view = input().view) {
    paint(canvas, base, map, look);
    if (view.name === "curve") drawSeries(canvas, view);
  }

  function paintThumbnail(canvas, map, whole) {
    paintOn(canvas, content.small, smoothNow(map), { limit: smoothNow(whole).limit, mode: mode(), opacity: 0.75, cutoff: 0 });
  }

  function drawLegend() {
    const { view, target } = input();
    const { map, limit } = current();
    const withSigns = mode() === "signed";
    const bars = view.name === "bars";
    const [plus, minus, either] = ["for", "against", "magnitude"].map((side) => make("span", { class: `swatch ${side}` }));
    const swatches = withSigns ? [plus, "speaks for, ", minus, "against "] : [either, "counts for or against "];
    const end = isMap(view) ? "the 99th percentile of its own strengths" : `its own strongest ${view.part}`;
    one(".shown", section()).replaceChildren(
      ...(chosen() ? ["Contrasted with ", make("bdi", {}, chosen().label), " alone. "] : []),
      ...(bars ? [...swatches, make("bdi", {}, target), ". "] : []),
      ...(sigma() ? [`The map is ${blurred()}, and its sum stays. `] : []),
      `The strongest ${view.part} has ${number(map.largest)}. `,
      `Every method’s scale ends at ${end}.`,
    );
    drawCaution(withSigns);
    if (bars) return;
    const part = (name) => colours[name].filter((_, i) => i % 15 === 0).map((rgb) => `rgb(${rgb.map(Math.round).join(" ")})`);
    const shades = withSigns ? [...part("negative").reverse(), ...part("positive")] : part("magnitude");
    const bar = one(".bar", section());
    if (!isMap(view)) bar.className = `bar ${mode()}`;
    else bar.style.backgroundImage = `linear-gradient(to right, ${shades.join(", ")})`;
    const ticks =
      withSigns
        ? [`${number(-limit)}, against`, "0", `for, ${signed(limit)}`]
        : ["0", number(limit / 2), number(limit) + (map.largest > limit ? " or more" : "")];
    all(".ticks span", section()).forEach((tick, i) => (tick.textContent = ticks[i]));
  }

  // Why there are no signs, or why not to believe them; and what a map of strength hides if all of it is of one sign.
  function drawCaution(withSigns) {
    const view = shownView();
    const others = input().methods.filter(isSignless).map(({ name }) => make("bdi", {}, name));
    const caution = one(".caution", section());
    const like = others.flatMap((name, i) => (i ? [", ", name] : [name]));
    const words =
      isSignless(view) && withSigns ? [`Do not believe the signs: trust is ${percent(view.trust)}.`]
      : isSignless(view) ? [`Strength without signs: trust is ${percent(view.trust)}, so for and against cannot be told apart.`]
      : others.length && !withSigns && state.mode === null ? ["Strength without signs, as in the map it is compared with: ", ...like, "."]
      : [];
    if (view.is_against && !isSignless(view)) {
      const fell = view.baseline_output !== null && view.output < view.baseline_output;
      const there = view.references.length ? "references" : "baseline";
      const why = fell ? `, since the output explained is lower here than at the ${there}.` : ".";
      words.unshift("All of this speaks against ", make("bdi", {}, input().target), words.length ? `${why} ` : why);
    }
    caution.hidden = !words.length;
    caution.replaceChildren(...words);
  }

  function mark(value) {
    const marker = one(".marker", section());
    if (!marker) return; // bars have no legend
    marker.hidden = value === null;
    if (value === null) return;
    const { limit } = current();
    const place = mode() === "signed" ? (value / limit + 1) / 2 : Math.abs(value) / limit;
    marker.style.left = `${100 * clamp(place, 0, 1)}%`;
  }

  // -- reading a pixel --------------------------------------------------------------------------------------------------

  let pointed = null; // the pixel of the map

  function point(x, y, aloud) {
    const { map } = current();
    pointed = { x: clamp(x, 0, map.width - 1), y: clamp(y, 0, map.height - 1) };
    const at = pointed.y * map.width + pointed.x;
    const value = map.values[at];
    const [left, top] = [pointed.x / map.width, pointed.y / map.height];
    const place = { x: Math.floor(left * content.width), y: Math.floor(top * content.height) };
    const across = content.width / map.width;
    const around = across > 1 && input().view.name === "picture" ? `, mean of ${Math.round(across)} × ${Math.round(across)}` : "";
    const cross = one(".cross", section());
    const tip = one(".tip", section());
    cross.hidden = tip.hidden = false;
    cross.style.left = tip.style.left = `${100 * (left + 0.5 / map.width)}%`;
    cross.style.top = tip.style.top = `${100 * (top + 0.5 / map.height)}%`;
    tip.classList.toggle("leftward", left > 0.5);
    tip.classList.toggle("downward", top < 0.2);
    const { view } = input();
    const where = view.name === "curve" ? nameMoment(view, pointed, map.width) : `x ${place.x}, y ${place.y}`;
    tip.replaceChildren(make("strong", {}, scored(value)), make("span", {}, `${where}${around}`), sigma() ? blurred() : "");
    mark(value);
    // a screen reader would choke on every pixel the pointer crosses
    if (aloud) one(".readout", section()).textContent = `${where}: ${scored(value)}${around}`;
  }

  function unpoint() {
    pointed = null;
    for (const element of all(".cross, .tip", section())) element.hidden = true;
    mark(null);
  }

  function watchPicture(canvas) {
    const follow = (event) => {
      const box = canvas.getBoundingClientRect();
      const { map } = current();
      const x = Math.floor(((event.clientX - box.left) / box.width) * map.width);
      point(x, Math.floor(((event.clientY - box.top) / box.height) * map.height), false);
    };
    // the frame has corners, and the canvas has them rounded off
    const frame = canvas.parentElement;
    frame.addEventListener("pointermove", follow);
    frame.addEventListener("pointerdown", follow);
    frame.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && unpoint());
    canvas.addEventListener("blur", unpoint);
    canvas.addEventListener("keydown", (event) => {
      const step = event.shiftKey ? 10 : 1;
      const move = pick(event, { ArrowLeft: [-step, 0], ArrowRight: [step, 0], ArrowUp: [0, -step], ArrowDown: [0, step] });
      if (event.key === "Escape") unpoint();
      if (!move) return;
      const { map } = current();
      const shown = !one(".cross", section()).hidden;
      const from = pointed ?? { x: Math.floor(map.width / 2), y: Math.floor(map.height / 2) };
      point(from.x + (shown ? move[0] : 0), from.y + (shown ? move[1] : 0), true);
    });
  }

  // -- words and columns ------------------------------------------------------------------------------------------------


  function drawWords({ map, cutoff, limit, mode, opacity }) {
    one(".bar", section()).style.setProperty("--strength", ink(opacity));
    const words = one(".words", section());
    const units = input().view.words;
    if (!words.childElementCount) {
      units.forEach((unit, i) => {
        const word = make("span", { role: "option", tabindex: i ? -1 : 0, "aria-selected": "false" }, make("bdi", {}, ellipsis(unit)));
        word.addEventListener("pointerenter", () => readWord(words, word));
        word.addEventListener("focus", () => readWord(words, word));
        words.append(word, " ");
      });
      words.addEventListener("pointerleave", () => readWord(words, null));
      words.addEventListener("focusout", () => readWord(words, null));
      words.addEventListener("keydown", (event) => {
        const options = [...words.children];
        const from = options.indexOf(document.activeElement);
        const [back, on, end] = [from - 1, from + 1, options.length - 1];
        const to = pick(event, { ArrowLeft: back, ArrowUp: back, ArrowRight: on, ArrowDown: on, Home: 0, End: end });
        if (to === undefined) return;
        const next = options[clamp(to, 0, options.length - 1)];
        options.forEach((option) => (option.tabIndex = option === next ? 0 : -1));
        next.focus();
      });
    }
    [...words.children].forEach((word, i) => {
      const value = map.values[i];
      const strength = Math.min(1, Math.abs(value) / limit) * ink(opacity);
      word.style.setProperty("--strength", strength.toFixed(3));
      word.className = `${sideOf(value, mode)}${Math.abs(value) < cutoff ? " weak" : ""}`;
      word.setAttribute("aria-label", `${units[i]}: ${scored(value)}`);
    });
  }

  function readWord(words, word) {
    // words that were left because another input is shown now have nothing more to say
    if (!section().contains(words)) return;
    const readout = one(".readout", section());
    const options = [...words.children];
    const active = word ?? options.find((option) => option === document.activeElement);
    options.forEach((option) => option.setAttribute("aria-selected", String(option === active)));
    const at = options.indexOf(active);
    const value = active ? current().map.values[at] : null;
    mark(value);
    if (!active) return readout.replaceChildren();
    return readout.replaceChildren(make("bdi", {}, input().view.words[at]), " ", make("strong", {}, scored(value)));
  }

  function drawBars({ map, cutoff, mode }) {
    const { columns, cells } = input().view;
    const ends = (chosen() ?? method()).gradcf?.cells;
    const cell = (text) => make("td", { class: "cell" }, make("bdi", { class: isNaN(text) ? "" : "number" }, text ?? ""));
    const hasEnds = input().methods.some(({ gradcf }) => gradcf);
    const order = [...map.values.keys()].sort((a, b) => Math.abs(map.values[b]) - Math.abs(map.values[a]));
    const scale = map.largest || 1;
    one(".bars tbody", section()).replaceChildren(
      ...order.map((i) => {
        const value = map.values[i];
        return make(
          "tr",
          { class: Math.abs(value) < cutoff ? "weak" : "" },
          make("th", { scope: "row" }, make("bdi", {}, columns[i])),
          cell(cells[i]),
          ...(hasEnds ? [cell(ends?.[i])] : []),
          drawScore(value, scale, mode),
        );
      }),
    );
  }

  // A bar as long as a value, on a scale, and its number.
  function drawScore(value, scale, mode) {
    const bar = make("span", { class: sideOf(value, mode) });
    bar.style.width = `${((mode === "magnitude" ? 100 : 50) * Math.abs(value)) / scale}%`;
    const track = make("span", { class: `track ${mode}`, "aria-hidden": "true" }, bar);
    return make("td", { class: "score" }, track, make("span", { class: "value" }, scored(value)));
  }

  // The sums over sentences, messages or documents, of the chosen reference or of all.
  function drawSpans({ mode }) {
    const body = one(".spans tbody", section());
    if (!body) return;
    const sums = Object.entries(shownView().spans);
    const scale = Math.max(...sums.map(([, sum]) => Math.abs(sum))) || 1;
    body.replaceChildren(
      ...sums.map(([name, sum]) => make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, name)), drawScore(sum, scale, mode))),
    );
  }

  // -- signals ----------------------------------------------------------------------------------------------------------

  const momentAt = (view, interval, intervals) => short((Math.floor((interval * view.steps) / intervals)) / (view.rate ?? 1));

  function nameMoment(view, { x, y }, intervals) {
    const unit = view.rate === null ? "" : "\u00a0s";
    const channel = view.channels.length > 1 ? `${view.channels[y]}, ` : "";
    return `${channel}${number(momentAt(view, x, intervals))} to ${number(momentAt(view, x + 1, intervals))}${unit}`;
  }

  // The curve of each channel in a band of its own, from its lowest to its highest value: as lines that touch from interval to
  // interval, since thousands of steps lie in one.
  function drawSeries(canvas, { lowest, highest }) {
    if (!lowest) return;
    const context = canvas.getContext("2d");
    const band = canvas.height / lowest.length;
    context.lineWidth = Math.max(1, canvas.width / 700);
    context.strokeStyle = "#1b1b1f";
    lowest.forEach((low, channel) => {
      const high = highest[channel];
      const [floor, ceiling] = [Math.min(...low), Math.max(...high)];
      const y = (value) => band * (channel + 0.92 - (0.84 * (value - floor)) / (ceiling - floor || 1));
      context.beginPath();
      low.forEach((value, i) => {
        const x = ((i + 0.5) / low.length) * canvas.width;
        context.lineTo(x, y(value));
        context.lineTo(x, y(high[i]));
      });
      context.stroke();
    });
  }

  // The names of the channels on their bands, with the values that a band reaches from and to, and the time below.
  function drawAxes() {
    const { view } = input();
    if (view.name !== "curve") return;
    const last = view.steps / (view.rate ?? 1);
    const range = (i) => (view.lowest ? `: ${number(Math.min(...view.lowest[i]))} to ${number(Math.max(...view.highest[i]))}` : "");
    one(".channels", section()).replaceChildren(...view.channels.map((name, i) => make("li", {}, make("span", {}, make("bdi", {}, name), range(i)))));
    const ticks = ticksBetween(0, last, 6, view.rate === null).map(({ value, label }) => {
      const tick = make("span", {}, label);
      tick.style.left = `${(100 * value) / last}%`;
      return tick;
    });
    one(".time", section()).replaceChildren(...ticks);
  }

  // A reference or the end of a path, small: as a picture, or as its curve.
  function drawSmall(view, alt) {
    if (view?.name === "picture") return view.pixels === null ? [] : [make("img", { src: picturesOf(input())[view.pixels], alt })];
    if (view?.name !== "curve") return [];
    const canvas = make("canvas", { class: "small", role: "img", "aria-label": alt, width: 320, height: 64 * view.channels.length });
    drawSeries(canvas, view);
    return [canvas];
  }

  // -- references -------------------------------------------------------------------------------------------------------

  function drawReferences() {
    const { references } = method();
    const place = one(".references", section());
    place.hidden = references.length === 0;
    if (place.hidden) return;
    const whole = content.maps[state.method];
    const thumbnail = (map) => {
      if (!isMap(input().view)) return [];
      const canvas = make("canvas", { "aria-hidden": "true" });
      paintThumbnail(canvas, map, whole);
      return [canvas];
    };
    const card = (index, map, ...inside) => {
      const button = make("button", { type: "button", "aria-pressed": String(state.reference === index) }, ...inside);
      button.disabled = !map;
      button.addEventListener("click", () => choose(index));
      return make("li", {}, button);
    };
    const caption = (name, text, ...said) =>
      make(
        "span",
        { class: "caption" },
        make("bdi", { class: "name" }, name),
        ...(text === null ? [] : [make("bdi", { class: "text" }, text)]),
        ...said.map((line) => make("span", { class: "said" }, line)),
      );
    const cards = references.map((reference, i) => {
      const map = content.references[state.method][i];
      const picture = drawSmall(reference.view, "");
      const trust = reference.trust === null ? [] : [`trust ${percent(reference.trust)}`];
      const about = caption(reference.label, reference.text, `output ${number(reference.output)}`, ...trust);
      return card(i, map, ...picture, ...(map ? thumbnail(map) : []), about);
    });
    const walks = method().output_curve !== null; // Strata and DeepSHAP compare two points, without a path between them
    let lead = walks ? "The path leads from the input to it." : "The input is compared with it.";
    if (references.length > 1) {
      const alone = content.references[state.method].some(Boolean);
      lead =
        alone ? "Each reference tells its own story. Choose one to see it alone."
        : walks ? "A path leads from the input to each."
        : "The input is compared with each.";
      const over = `${walks || alone ? "mean of" : "from all"} ${references.length}`;
      cards.unshift(card(null, whole, ...thumbnail(whole), caption("All together", null, over)));
    }
    place.replaceChildren(
      make("h3", {}, count(references.length, "reference")),
      make("p", { class: "meaning" }, method().question ? `${method().question} ${lead}` : lead),
      make("ul", {}, ...cards),
    );
  }

  function choose(reference) {
    const before = mode();
    state.reference = reference;
    for (const [i, button] of all(".references button", section()).entries()) {
      const several = method().references.length > 1; // then the first button is all of them
      button.setAttribute("aria-pressed", String((several ? i - 1 : i) === (reference ?? -1)));
    }
    unpoint();
    drawStage();
    drawLegend();
    drawCharts();
    drawSums();
    if (mode() !== before) drawThumbnails();
    remember(describe());
  }

  // -- what it is worth -------------------------------------------------------------------------------------------------

  // Of the chosen reference, or of all together.
  function drawSums() {
    const [whole, view, reference] = [method(), shownView(), chosen()];
    const { output } = whole;
    const baseline = reference ? reference.output : whole.baseline_output;
    const row = (name, value, mark = "", ...rest) =>
      make("div", { class: mark }, make("dt", {}, name), make("dd", {}, make("span", { class: "number" }, value), " ", ...rest));
    const aside = (text) => make("span", { class: "share" }, `· ${text}`);
    // a number with its mark; in words, where they say more than it does
    const judged = (name, value, share = []) => {
      const { mark = "", badge } = view.marks[name] ?? {};
      const words = share.length && mark !== "none" ? share : !badge || mark === "good" ? [] : [aside(badge)];
      return row(nameMetric(name), value, mark, ...words);
    };
    const rows = [];
    const shown = new Set();
    if (baseline !== null && view.residual !== null) {
      const change = output - baseline;
      const total = change + view.residual;
      const [low, high] = [Math.min(change, total, 0), Math.max(change, total, 0)];
      const place = (value) => `${(100 * value) / (high - low || 1)}%`;
      for (const [name, value] of [["Change in the output", change], ["Sum of the scores", total]]) {
        const bar = make("span");
        Object.assign(bar.style, { left: place(Math.min(value, 0) - low), width: place(Math.abs(value)) });
        rows.push(row(name, number(value)));
        rows.at(-1).append(make("dd", { class: "length", "aria-hidden": "true" }, bar));
      }
      const relative = Math.abs(view.residual / change);
      const none = relative < 1e-5 || view.residual === 0; // what float32 leaves of nothing
      const share = none || !change ? [] : [aside(`${percent(relative)} of the change`)];
      rows.push(judged("residual", none ? "none" : number(view.residual), share));
      shown.add("residual");
    }
    for (const name of ["trust", "arrival"]) {
      if (view[name] === null) continue;
      rows.push(judged(name, percent(view[name])));
      shown.add(name);
    }
    for (const [name, { mark, badge }] of Object.entries(view.marks)) if (mark === "poor" && !shown.has(name)) rows.push(row(nameMetric(name), badge, mark));
    for (const [name, value] of reference ? [] : Object.entries(whole.extra)) rows.push(row(nameMetric(name), typeof value === "number" ? number(value) : value));
    const several = !reference && whole.references.length > 1;
    const ends = several ? ["its baselines on average", "its references on average"] : ["its baseline", "its reference"];
    const outputs = Object.entries({ "the input": output, [ends[0]]: baseline, [ends[1]]: view.reference_output });
    const known = outputs.filter(([, value]) => value !== null).map(([of, value]) => `${number(value)} for ${of}`);
    one(".sums", section()).replaceChildren(
      make("h3", {}, "Does it add up?"),
      ...(reference ? [make("p", { class: "meaning" }, "Contrasted with ", make("bdi", {}, reference.label), " alone.")] : []),
      make("dl", {}, ...rows),
      ...(known.length ? [make("p", { class: "meaning" }, `Output: ${known.join(", ")}.`)] : []),
      ...(whole.note && known.length ? [make("p", { class: "meaning" }, make("bdi", {}, whole.note))] : []),
    );
    drawBadges();
    drawEnd(reference ?? whole.references[0]);
  }

  // What the findings on the method, or on the chosen reference, come to, in a few words each.
  function drawBadges() {
    const found = Object.values(shownView().marks).filter(({ badge }) => badge);
    one(".badges", section()).replaceChildren(...found.map(({ badge, mark }) => make("span", { class: mark }, badge)));
    one(".belief", section()).hidden = !found.length;
  }

  function drawEnd(reference) {
    const figure = one(".counterfactual", section());
    const picture = drawSmall(chosen()?.gradcf ?? method().gradcf, "The input at the end of its path");
    figure.hidden = !picture.length;
    if (figure.hidden) return;
    const towards = reference ? make("bdi", {}, reference.label) : "the first reference";
    const first = !chosen() && method().references.length > 1 ? ", the first reference" : "";
    figure.replaceChildren(
      ...picture,
      make(
        "figcaption",
        {},
        make("h3", {}, "Where the path ends"),
        make("p", { class: "meaning" }, "The input, changed step by step towards ", towards, `${first}, as the network sees it.`),
      ),
    );
  }

  // -- curves -----------------------------------------------------------------------------------------------------------

  const CURVES = { output: "Output along the path", distance: "Distance to the reference" };
  const nameMetric = (name) => (name[0].toUpperCase() + name.slice(1)).replaceAll("_", " ");

  function ticksBetween(low, high, wanted, whole) {
    const rough = (high - low) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const unlike = (size) => Math.abs(Math.log(size / rough));
    let step = [1, 2, 5, 10].map((times) => times * power).sort((a, b) => unlike(a) - unlike(b))[0];
    if (whole) step = Math.max(1, Math.round(step));
    const first = Math.ceil(low / step);
    const places = Math.max(0, -Math.floor(Math.log10(step)));
    return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => {
      const value = (first + i) * step;
      const plain = Math.max(Math.abs(low), Math.abs(high)) < 1e5 && places < 4;
      return { value, label: plain ? value.toFixed(places).replace("-", "−") : number(value) };
    });
  }

  function drawCharts() {
    const place = one(".curves", section());
    const kinds = Object.keys(CURVES).filter((kind) => method()[`${kind}_curve`]);
    const curves = [
      ...kinds.map((kind) => [CURVES[kind], kind, method()[`${kind}_curve`], {}]),
      ...Object.entries(method().metric_curves).map(([name, curve]) => [nameMetric(name), "output", curve, { across: "features changed, %", last: 100 }]),
    ];
    place.hidden = !curves.length;
    // in their place before they are drawn, since their width decides where everything goes
    const figures = curves.map(() => make("figure", { class: "chart" }));
    place.replaceChildren(...figures);
    curves.forEach(([title, axis, curve, words], i) => drawChart(figures[i], title, axis, curve, words));
  }

  function drawChart(figure, title, axis, { steps: places, values }, { across = "steps from the input", last: end = null }) {
    const steps = end === null ? places : places.map((step) => (step * end) / (places.at(-1) || 1));
    const mean = steps.map((_, k) => values.reduce((sum, curve) => sum + curve[k], 0) / values.length);
    const width = figure.clientWidth || 360;
    const [height, left, right, top, bottom] = [190, 46, 6, 10, 38];
    const flat = values.flat();
    let [low, high] = [Math.min(...flat), Math.max(...flat)];
    if (axis === "distance") low = Math.min(0, low);
    if (high - low < 1e-9 * Math.max(1, Math.abs(high))) [low, high] = [low - 1, high + 1];
    const last = steps[steps.length - 1] || 1;
    const x = (step) => left + (step / last) * (width - left - right);
    const y = (value) => top + ((high - value) / (high - low)) * (height - top - bottom);
    const line = (curve) => curve.map((value, k) => `${k ? "L" : "M"}${x(steps[k]).toFixed(1)} ${y(value).toFixed(1)}`).join("");
    const several = values.length > 1;
    const over = several ? `, mean over ${values.length} references` : "";
    const said = `${title}: ${number(mean[0])} at the ${end === null ? "input" : "start"}, ${number(mean[mean.length - 1])} at the end${over}`;
    const endsOnly = steps.length === 2; // a line between them would claim to know what lies there
    const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", tabindex: 0, "aria-label": said });
    for (const { value, label } of ticksBetween(low, high, 4, false)) {
      svg.append(
        draw("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
        draw("text", { x: left - 8, y: y(value), dy: "0.32em", "text-anchor": "end" }, label),
      );
    }
    for (const { value, label } of ticksBetween(0, last, 5, true)) {
      svg.append(draw("text", { x: x(value), y: height - bottom + 16, "text-anchor": "middle" }, label));
    }
    svg.append(
      draw("text", { x: (left + width - right) / 2, y: height - 4, "text-anchor": "middle" }, across),
      draw("text", { transform: `translate(10 ${(top + height - bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, axis),
    );
    const own = several && state.reference !== null ? values[state.reference] : null;
    // few points deserve to be seen as points
    const points = (curve, name, r) => steps.map((step, k) => draw("circle", { class: name, r, cx: x(step), cy: y(curve[k]) }));
    const add = (curve, name) => {
      if (!endsOnly) svg.append(draw("path", { class: name, d: line(curve) }));
      else if (name === "single") svg.append(...points(curve, name, 2));
    };
    if (several) for (const curve of values) add(curve, "single");
    add(mean, own ? "mean faded" : "mean");
    if (own) add(own, "chosen");
    if (steps.length < 8) svg.append(...points(own ?? mean, own ? "dot own" : "dot", 3));
    const rule = draw("line", { class: "rule", y1: top, y2: height - bottom, visibility: "hidden" });
    const dot = draw("circle", { class: "dot", r: 4, visibility: "hidden" });
    svg.append(rule, dot);
    const readout = make("output", { "aria-live": "polite" });
    let at = null;
    const read = (k) => {
      at = k;
      for (const element of [rule, dot]) element.setAttribute("visibility", k === null ? "hidden" : "visible");
      const line = own ? "this reference in colour" : "mean bold, each reference thin";
      if (k === null) return readout.replaceChildren(endsOnly ? "ends only" : several ? line : "");
      const shown = (own ?? mean)[k];
      const here = values.map((curve) => curve[k]);
      const [least, most] = [Math.min(...here), Math.max(...here)];
      furnish(rule, { x1: x(steps[k]), x2: x(steps[k]) });
      furnish(dot, { cx: x(steps[k]), cy: y(shown) });
      const range = most - least > TINY * Math.abs(shown) ? ` (${number(least)} to ${number(most)})` : "";
      return readout.replaceChildren(end === null ? `step ${steps[k]}: ` : `${Math.round(steps[k])}\u00a0%: `, make("strong", {}, number(shown)), range);
    };
    svg.addEventListener("pointermove", (event) => {
      const box = svg.getBoundingClientRect();
      const step = (((event.clientX - box.left) / box.width) * width - left) / (width - left - right) * last;
      read(steps.reduce((best, value, k) => (Math.abs(value - step) < Math.abs(steps[best] - step) ? k : best), 0));
    });
    for (const left of ["pointerleave", "blur"]) svg.addEventListener(left, () => read(null));
    svg.addEventListener("keydown", (event) => {
      const move = pick(event, { ArrowLeft: -1, ArrowRight: 1 });
      if (move) read(at === null ? 0 : clamp(at + move, 0, steps.length - 1));
    });
    read(null);
    figure.replaceChildren(make("figcaption", {}, make("h3", {}, title), readout), svg);
  }

  // -- the numbers ------------------------------------------------------------------------------------------------------

  const short = (value) => Number(value.toPrecision(6));
  function nest(map) {
    if (!isMap(input().view)) return [...map.values].map(short);
    return Array.from({ length: map.height }, (_, y) => [...map.values.subarray(y * map.width, (y + 1) * map.width)].map(short));
  }

  function writeJson() {
    const { view, pictures, methods, ...rest } = input();
    const { pixels, ...shown } = view;
    return JSON.stringify({
      ...rest,
      view: shown,
      ...(sigma() ? { blurred_by_pixels: sigma() } : {}),
      methods: methods.map(({ scores, gradcf, references, marks, is_against, ...method }, m) => ({
        ...method,
        scores: nest(smoothNow(content.maps[m])),
        references: references.map(({ view, scores, gradcf, marks, ...reference }, r) => ({
          ...reference,
          scores: scores && nest(smoothNow(content.references[m][r])),
        })),
      })),
    });
  }

  function writeCsv() {
    const { view, methods } = input();
    // a spreadsheet would run a word that starts like a formula
    const guard = (text) => (/^[=+\-@\t\r]/.test(text) && Number.isNaN(Number(text)) ? "'" : "");
    const cell = (text) => `"${guard(text)}${text.replaceAll('"', '""')}"`;
    const { width } = content.maps[0];
    const place = {
      picture: { names: ["y", "x"], of: (i) => [Math.floor(i / width), i % width] },
      words: { names: ["position", "word"], of: (i) => [i, cell(view.words[i])] },
      bars: { names: ["column", "cell"], of: (i) => [cell(view.columns[i]), cell(view.cells[i] ?? "")] },
      curve: {
        names: ["channel", view.rate === null ? "from_step" : "from_second"],
        of: (i) => [cell(view.channels[Math.floor(i / width)]), momentAt(view, i % width, width)],
      },
    }[view.name];
    const lines = [[...place.names, ...methods.map(({ name }) => cell(name))].join(",")];
    const maps = content.maps.map(smoothNow);
    for (let i = 0; i < maps[0].values.length; i++) {
      lines.push([...place.of(i), ...maps.map((map) => short(map.values[i]))].join(","));
    }
    return lines.join("\r\n") + "\r\n";
  }

  function download(kind) {
    const [text, type] = kind === "json" ? [writeJson(), "application/json"] : [writeCsv(), "text/csv;charset=utf-8"];
    const url = URL.createObjectURL(new Blob([text], { type }));
    const name = input().name.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "scores";
    make("a", { href: url, download: `${name}${sigma() ? `-${sigma()}px` : ""}.${kind}` }).click();
    setTimeout(() => URL.revokeObjectURL(url), 60000);
  }

  // -- going from one to another ----------------------------------------------------------------------------------------

  function showMethod() {
    const root = section();
    for (const tab of all("[role=tab]", root)) {
      const chosen = Number(tab.dataset.method) === state.method;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      if (chosen) one("[role=tabpanel]", root).setAttribute("aria-labelledby", tab.id);
    }
    for (const block of all(":is(.about, .verdict) [data-method]", root)) block.hidden = Number(block.dataset.method) !== state.method;
  }

  let painted = ""; // how the tabs are
  function drawTabs() {
    const wanted = `${state.key} ${mode()} ${sigma()}`;
    if (painted === wanted) return;
    painted = wanted;
    for (const canvas of all("[role=tab] canvas", section())) {
      const map = content.maps[Number(canvas.parentElement.dataset.method)];
      paintThumbnail(canvas, map, map);
    }
  }

  function drawThumbnails() {
    drawTabs();
    drawReferences();
  }

  function drawAll() {
    drawTabs();
    drawStage();
    drawLegend();
    drawReferences();
    drawCharts();
    drawSums();
    drawn();
    remember(describe());
  }

  let asked = null; // for last; what was asked for before may come later
  async function show(key, { method: tab, reference = null, ...settings } = {}) {
    asked = key;
    const item = await find(key);
    let ready;
    try {
      ready = await (item.content ??= load(item.input));
    } catch (error) {
      delete item.content;
      if (!shownItem) Object.assign(item.root, { hidden: false, inert: true }); // what can be read without its map
      throw error;
    }
    if (asked !== key) return;
    const changed = shownItem !== item;
    const same = shownItem ? item.input.methods.findIndex(({ name }) => name === method().name) : 0; // where it has the same one
    const methods = item.input.methods.length;
    tab ??= changed ? Math.max(0, same) : state.method;
    if (changed && shownItem) {
      unpoint();
      section().hidden = true;
    }
    [shownItem, content] = [item, ready];
    Object.assign(state, { key, method: Math.min(tab, methods - 1), reference }, settings);
    if (!content.references[state.method][state.reference]) state.reference = null;
    section().hidden = false;
    unpoint();
    showMethod();
    const frame = one(".frame", section());
    if (frame) frame.style.maxWidth = `${(60 * content.width) / content.height}vh`; // the whole picture on one screen, below its head
    drawAxes();
    drawAll();
    section().dataset.ready = "";
  }

  // What was chosen, as the words of an address; and what such words choose.
  function describe() {
    const parts = Object.keys(start).filter((name) => state[name] !== start[name]).map((name) => [name, state[name]]);
    if (state.reference !== null) parts.unshift(["reference", state.reference + 1]);
    return [["method", state.method + 1], ...parts].flat().join("-");
  }

  function parse(words) {
    const found = Object.fromEntries([...words.matchAll(/([a-z]+)-([a-z0-9.]+)/g)].map(([, name, value]) => [name, value]));
    const place = (value) => (/^[1-9]\d*$/.test(value) ? Number(value) - 1 : undefined);
    const reference = place(found.reference) ?? null;
    const tab = place(found.method);
    // a link that names no method leads to another input only, and the rest stays
    if (tab === undefined) return { reference };
    const chosen = { method: tab, reference, mode: ["signed", "magnitude"].includes(found.mode) ? found.mode : null };
    for (const [name, most] of [["opacity", 100], ["threshold", 100], ["scale", WIDEST]]) {
      chosen[name] = /^\d+(\.\d+)?$/.test(found[name]) ? clamp(Number(found[name]), 0, most) : start[name];
    }
    return chosen;
  }

  const chooseMethod = (index) => show(state.key, { method: index }).catch(complain);

  function watchSection(root) {
    for (const canvas of all(".stage canvas", root)) watchPicture(canvas);
    for (const tab of all("[role=tab]", root)) {
      tab.addEventListener("click", () => chooseMethod(Number(tab.dataset.method)));
      tab.addEventListener("keydown", (event) => {
        const tabs = all("[role=tab]", root);
        const from = tabs.indexOf(tab);
        const to = pick(event, { ArrowLeft: from - 1, ArrowRight: from + 1, Home: 0, End: tabs.length - 1 });
        if (to === undefined) return;
        const next = tabs[(to + tabs.length) % tabs.length];
        next.focus();
        chooseMethod(Number(next.dataset.method));
      });
    }
    for (const slider of all("[data-control]", root)) {
      slider.addEventListener("input", () => {
        state[slider.dataset.control] = Number(slider.value);
        drawStage();
        if (slider.dataset.control === "scale") drawLegend();
      });
      slider.addEventListener("change", () => {
        remember(describe());
        if (slider.dataset.control === "scale") drawThumbnails();
      });
    }
    for (const radio of all("[type=radio]", root)) {
      radio.addEventListener("change", () => {
        state.mode = radio.value;
        drawAll();
      });
    }
    for (const button of all("[data-download]", root)) button.addEventListener("click", () => download(button.dataset.download));
  }

  let before = innerWidth;
  addEventListener("resize", () => {
    if (innerWidth !== before && shownItem) drawCharts();
    before = innerWidth;
  });
  addEventListener("beforeprint", () => shownItem && all("details", section()).forEach((details) => (details.open = true)));

  return { show, parse, describe, state, method, mode, section, drawSums };
}
