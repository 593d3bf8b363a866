"use strict";
// What if: an input is edited, uploaded or pasted, and the model explains it. After drawing.js and explorer.js.

const whatIf = (() => {
  const SHORT = 30; // classes: more are typed and not listed
  const MOST_UNDO = 40;
  const PAUSE = 250; // ms after a change before the model is asked
  const session = [...crypto.getRandomValues(new Uint8Array(12))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  let about = null; // what the server says of the model
  let panel = null;
  const part = {}; // elements of the panel, by name
  let editor = null; // { read, fill, isEmpty } of the view
  let opened = null; // the item that is being edited: its id, "" for a new input
  let before = null; // its explanation in the store
  let last = null; // the explanation before this one
  let after = null;
  let trial = null;
  let asked = new AbortController();
  let waiting = 0;

  // -- asking ----------------------------------------------------------------------------------------------------------

  async function post(path, body, signal) {
    const answer = await fetch(path, { method: "POST", headers: { "x-ig2-session": session }, body, signal });
    if (!answer.ok) throw new Error((await answer.json().catch(() => ({}))).error ?? `the server answered ${answer.status}`);
    return answer;
  }

  async function follow(question, handle, signal) {
    const answer = await post("/whatif/explain", JSON.stringify(question), signal);
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) if (line) await handle(JSON.parse(line));
    }
  }

  function question(explain) {
    const against = part.against.value;
    const classes = all("input:checked", part.classes).map((box) => box.value);
    return {
      input: editor.read(),
      explain,
      origin: opened,
      target: part.target.value || null,
      against: against === "" ? null : against === "none" ? [] : [against],
      count: about.contrasts && part.count.value ? Number(part.count.value) : null,
      classes,
    };
  }

  async function askModel(explain) {
    clearTimeout(waiting);
    asked.abort();
    asked = new AbortController();
    const { signal } = asked;
    if (editor.isEmpty()) return say(`${invite()} first.`);
    trial = null;
    part.keep.disabled = true;
    part.cancel.hidden = !explain;
    part.progress.hidden = !explain;
    part.progress.removeAttribute("value");
    say(explain ? "Asking the model …" : "");
    panel.dataset.state = explain ? "explaining" : "predicting";
    try {
      await follow(question(explain), (event) => handle(event, explain, signal), signal);
    } catch (error) {
      if (signal.aborted) return;
      say(error.message === "Failed to fetch" ? "The server does not answer: is ig2 serve still running?" : error.message, true);
      finish("error");
    }
  }

  async function handle(event, explain, signal) {
    if (signal.aborted) return;
    if (event.event === "waiting") {
      if (event.ahead) say(`${event.ahead} ahead of you`);
      else if (explain && !after?.partial) say("Explaining …");
    } else if (event.event === "prediction") {
      drawPrediction(event);
    } else if (event.event === "map") {
      const map = await openMap(event.map);
      if (signal.aborted) return;
      if (after && !after.partial) last = after;
      after = { ...event, map, picture: editor.picture?.(), partial: event.done < event.total };
      part.progress.max = event.total;
      part.progress.value = event.done;
      if (event.total > 1) say(`${event.done} of ${event.total} references`);
      compare();
    } else if (event.event === "done") {
      trial = event.trial;
      part.keep.disabled = false;
      say(`Explained${after.references ? ` with ${count(after.total, "reference")}` : ""}.`);
    } else if (event.event === "error") {
      say(event.error, true);
      finish("error");
    } else if (event.event === "end") {
      finish(explain ? "done" : "predicted");
    } else if (event.event === "cancelled") {
      finish("cancelled");
    }
  }

  function finish(state) {
    part.cancel.hidden = part.progress.hidden = true;
    panel.dataset.state = state;
  }

  function cancel() {
    asked.abort();
    if (after?.partial) after.partial = false;
    say("Cancelled.");
    finish("cancelled");
    part.explain.focus();
  }

  function changed() {
    clearTimeout(waiting);
    asked.abort();
    trial = null;
    part.keep.disabled = true;
    part.cancel.hidden = part.progress.hidden = true;
    panel.dataset.state = "changed";
    if (!editor.isEmpty()) waiting = setTimeout(() => askModel(false), PAUSE);
  }

  function say(words, isError = false) {
    part.status.textContent = words;
    part.status.classList.toggle("wrong", isError);
  }

  // -- the input -------------------------------------------------------------------------------------------------------

  async function upload(content, name) {
    try {
      say("");
      await fill(await (await post(`/whatif/read?${new URLSearchParams({ name })}`, content)).json());
      changed();
    } catch (error) {
      say(error.message, true);
      panel.dataset.state = "error";
    }
  }

  const fill = (content) => editor.fill(content);
  const invite = () => (about.view === "picture" ? "Upload, drop or paste an image" : "Type, upload, drop or paste an input");

  function makeEditor() {
    if (about.view === "picture") return makePainting();
    if (about.view === "words") {
      const box = make("textarea", { rows: 4, maxlength: 20000, "aria-label": "The text", spellcheck: "false" });
      box.addEventListener("input", changed);
      return { element: box, read: () => box.value, isEmpty: () => !box.value.trim(), fill: ({ text }) => (box.value = text ?? "") };
    }
    const cells = about.columns.map(({ name, values }) => {
      const cell = values
        ? make("select", { "aria-label": name }, make("option", { value: "" }, ""), ...values.map((value) => make("option", { value }, value)))
        : make("input", { type: "text", inputmode: "decimal", autocomplete: "off", maxlength: 1000, "aria-label": name });
      cell.addEventListener("input", changed);
      return [name, cell];
    });
    const rows = cells.map(([name, cell]) => make("label", {}, make("bdi", {}, name), cell));
    return {
      element: make("div", { class: "cells" }, ...rows),
      read: () => Object.fromEntries(cells.map(([name, cell]) => [name, cell.value])),
      isEmpty: () => cells.every(([, cell]) => !cell.value),
      fill: ({ cells: given }) => cells.forEach(([name, cell]) => (cell.value = given?.[name] ?? "")),
    };
  }

  function makePainting() {
    const [height, width] = about.size;
    const canvas = make("canvas", { width, height, tabindex: 0, role: "application", "aria-describedby": "brush-hint", "aria-label": "The image. Arrow keys move the brush, the space bar paints" });
    canvas.style.imageRendering = width < 96 ? "pixelated" : "";
    const context = canvas.getContext("2d", { willReadFrequently: true });
    const ring = make("span", { class: "ring", hidden: "" });
    const tools = [["erase", "Erase"], ["blur", "Blur"], ["colour", "Colour"]].map(([value, words]) => {
      const choice = make("input", { type: "radio", name: "tool", value });
      choice.checked = value === "erase";
      return make("label", { class: "tool" }, choice, make("span", {}, words));
    });
    const colour = make("input", { type: "color", value: "#000000", "aria-label": "Colour" });
    const size = make("input", { type: "range", min: 1, max: Math.max(2, Math.round(Math.min(width, height) / 2)), value: Math.max(1, Math.round(width / 8)), "aria-label": "Size of the brush in pixels" });
    const undo = make("button", { type: "button", title: "Ctrl+Z" }, "Undo");
    const reset = make("button", { type: "button" }, "Reset");
    let original = null; // the picture as it came
    let steps = [];
    let source = null; // what the stroke paints with, for each pixel
    let at = { x: width / 2, y: height / 2 };

    const look = () => context.getImageData(0, 0, width, height);
    const show = (pixels) => context.putImageData(pixels, 0, 0);
    const mark = () => (undo.disabled = reset.disabled = !steps.length);

    function prepare() {
      const pixels = look();
      steps.push(pixels);
      if (steps.length > MOST_UNDO) steps.splice(1, 1); // the first is the picture as it came
      mark();
      const tool = one("input:checked", fieldset).value;
      if (tool === "blur") source = blurPixels(pixels, Math.max(1, Number(size.value) / 3));
      else {
        const single = tool === "colour" ? [1, 3, 5].map((i) => parseInt(colour.value.slice(i, i + 2), 16)) : average(pixels);
        source = { data: null, single };
      }
    }

    function stamp(x, y) {
      const radius = Number(size.value) / 2;
      const pixels = look();
      const [left, right] = [Math.max(0, Math.floor(x - radius)), Math.min(width - 1, Math.ceil(x + radius))];
      const [top, bottom] = [Math.max(0, Math.floor(y - radius)), Math.min(height - 1, Math.ceil(y + radius))];
      for (let row = top; row <= bottom; row++) {
        for (let column = left; column <= right; column++) {
          const inside = Math.hypot(column + 0.5 - x, row + 0.5 - y) <= radius || (Math.floor(x) === column && Math.floor(y) === row);
          if (!inside) continue;
          const place = 4 * (row * width + column);
          for (let channel = 0; channel < 3; channel++) pixels.data[place + channel] = source.data ? source.data[place + channel] : source.single[channel];
        }
      }
      show(pixels);
    }

    function stroke(from, to) {
      const many = Math.max(1, Math.ceil(Math.hypot(to.x - from.x, to.y - from.y) / Math.max(0.5, Number(size.value) / 4)));
      for (let i = 1; i <= many; i++) stamp(from.x + ((to.x - from.x) * i) / many, from.y + ((to.y - from.y) * i) / many);
    }

    function showRing() {
      const diameter = (Number(size.value) * canvas.clientWidth) / width;
      Object.assign(ring.style, { width: `${diameter}px`, height: `${diameter}px`, left: `${(at.x / width) * canvas.clientWidth}px`, top: `${(at.y / height) * canvas.clientHeight}px` });
      ring.hidden = false;
    }

    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return { x: ((event.clientX - box.left) / box.width) * width, y: ((event.clientY - box.top) / box.height) * height };
    };
    canvas.addEventListener("pointerdown", (event) => {
      if (!original || event.button) return;
      canvas.setPointerCapture(event.pointerId);
      prepare();
      at = place(event);
      stamp(at.x, at.y);
    });
    canvas.addEventListener("pointermove", (event) => {
      const to = place(event);
      if (source && event.buttons) stroke(at, to);
      at = to;
      showRing();
    });
    for (const name of ["pointerup", "pointercancel"]) {
      canvas.addEventListener(name, () => {
        if (source) changed();
        source = null;
      });
    }
    canvas.addEventListener("pointerleave", () => (ring.hidden = document.activeElement !== canvas));
    canvas.addEventListener("focus", showRing);
    canvas.addEventListener("blur", () => (ring.hidden = true));
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey) return;
      const far = event.shiftKey ? 1 : Math.max(1, Number(size.value) / 2);
      const arrow = pick(event, { ArrowLeft: [-far, 0], ArrowRight: [far, 0], ArrowUp: [0, -far], ArrowDown: [0, far], " ": [0, 0] });
      if (!arrow) return;
      at = { x: clamp(at.x + arrow[0], 0, width), y: clamp(at.y + arrow[1], 0, height) };
      showRing();
      if (event.key !== " " || !original) return;
      prepare();
      stamp(at.x, at.y);
      source = null;
      changed();
    });
    size.addEventListener("input", showRing);
    undo.addEventListener("click", goBack);
    reset.addEventListener("click", () => {
      if (steps.length) show(steps[0]);
      steps = [];
      mark();
      changed();
    });
    function goBack() {
      if (!steps.length) return;
      show(steps.pop());
      mark();
      changed();
    }

    const fieldset = make("fieldset", { class: "tools" }, make("legend", {}, "Brush"), ...tools, colour, make("label", { class: "size" }, make("span", {}, "Size"), size), make("span", { class: "buttons" }, undo, reset));
    mark();
    return {
      element: make("div", { class: "painting" }, make("div", { class: "left" }, make("div", { class: "easel" }, canvas, ring), make("p", { class: "hint", id: "brush-hint" }, "Drag to paint. By keyboard: arrows move the brush, with Shift by one pixel; the space bar paints.")), fieldset),
      read: () => canvas.toDataURL("image/png"),
      isEmpty: () => !original,
      picture: () => look(),
      original: () => steps[0] ?? look(),
      undo: goBack,
      async fill({ picture }) {
        [original, steps] = [null, []];
        mark();
        context.clearRect(0, 0, width, height);
        canvas.classList.toggle("empty", !picture);
        if (!picture) return;
        const image = new Image();
        image.src = picture;
        await image.decode();
        context.drawImage(image, 0, 0);
        original = picture;
      },
    };
  }

  function average({ data }) {
    const sums = [0, 0, 0];
    for (let i = 0; i < data.length; i += 4) for (let channel = 0; channel < 3; channel++) sums[channel] += data[i + channel];
    return sums.map((sum) => Math.round((4 * sum) / data.length));
  }

  function blurPixels({ data, width, height }, sigma) {
    const blurred = new Uint8ClampedArray(data.length);
    for (let channel = 0; channel < 3; channel++) {
      const values = Float64Array.from({ length: width * height }, (_, i) => data[4 * i + channel]);
      const across = blur(values, width, height, sigma, 1, width);
      blur(across, height, width, sigma, width, 1).forEach((value, i) => (blurred[4 * i + channel] = value));
    }
    return { data: blurred };
  }

  // -- what comes back -------------------------------------------------------------------------------------------------

  function drawPrediction({ prediction, classes, are_shares: areShares }) {
    const most = Math.max(...classes.map(([, value]) => Math.abs(value))) || 1;
    const bars = classes.map(([name, value]) => {
      const bar = make("i");
      bar.style.width = `${100 * (areShares ? value : Math.abs(value) / most)}%`;
      return make("li", {}, bar, make("bdi", {}, name), make("span", { class: "number" }, areShares ? percent(value) : number(value)));
    });
    const was = before && before.prediction !== prediction ? [" (before: ", make("bdi", {}, before.prediction), ")"] : [];
    part.prediction.replaceChildren(make("p", {}, "Prediction: ", make("b", {}, make("bdi", {}, prediction)), ...was), make("ol", {}, ...bars));
    part.prediction.dataset.prediction = prediction;
  }

  const openMap = async (map) => (map.view === "picture" ? { ...map, ...(await unpack(map.scores)) } : map);

  function compare() {
    const former = part.former.value === "last" ? last : before;
    const facts = [after, former].filter(Boolean);
    part.former.parentElement.hidden = !before || !last;
    part.why.replaceChildren("Why ", make("bdi", {}, nameQuestion(after)), "? ", after.why ? `References: ${after.why}.` : "");
    // values of two classes have no difference
    const isSame = !former || nameQuestion(former) === nameQuestion(after);
    part.other.hidden = isSame;
    if (!isSame) one("bdi", part.other).textContent = nameQuestion(former);
    if (about.view === "picture") compareImages(former, isSame);
    else compareUnits(former, isSame);
    const names = [["output", "Output", number], ["baseline_output", "At the references", number], ["relative_residual", "Residual", percent], ["trust", "Trust", percent], ["arrival", "Arrival", percent]];
    const rows = names.filter(([name]) => facts.some((fact) => fact[name] !== null && fact[name] !== undefined)).map(([name, words, format]) =>
      make("tr", {}, make("th", { scope: "row" }, words), ...[former, after].filter(Boolean).map((fact) => make("td", {}, fact[name] === null ? "–" : format(fact[name])))));
    const heads = [...(former ? ["before"] : []), "after"].map((words) => make("th", { scope: "col" }, words));
    part.numbers.replaceChildren(make("thead", {}, make("tr", {}, make("td"), ...heads)), make("tbody", {}, ...rows));
    part.references.replaceChildren(...(after.references ?? []).map(([name, label]) => make("li", {}, make("bdi", {}, name), " ", make("span", { class: "soft" }, label))));
    part.references.parentElement.hidden = !after.references?.length;
    if (part.results.hidden) {
      part.results.hidden = false; // below the panel's edge, where nobody would see it come; Cancel stays in sight
      panel.scrollTop += part.explain.getBoundingClientRect().top - panel.getBoundingClientRect().top - 14;
    }
    part.results.dataset.done = after.done;
  }

  const nameQuestion = ({ question, target }) => question ?? target;

  // The question of an explanation, so that the next one can be compared with it; of several classes, none can be chosen here.
  function askLike(former) {
    [part.target.value, part.against.value] = former && former.against.length < 2 ? [former.target, former.against[0] ?? "none"] : ["", ""];
    if (part.target.value === "" || part.against.value === "") part.target.value = part.against.value = ""; // a class without a name
  }

  function figure(words, element) {
    return make("figure", {}, make("figcaption", {}, words), element);
  }

  function compareImages(former, isSame) {
    const shown = [];
    const limit = Math.max(after.map.limit, former?.map.limit ?? 0);
    const modeOf = (fact) => (isSignless(fact) ? "magnitude" : "signed");
    const add = (words, map, pixels, options) => {
      const canvas = make("canvas", { role: "img", "aria-label": `${words}: the map of values` });
      paint(canvas, pixels ?? readPixels(null, map.width, map.height), map, { opacity: pixels ? 0.75 : 1, cutoff: 0, ...options });
      shown.push(figure(words, canvas));
    };
    if (former) add("Before", former.map, former.picture ?? editor.original(), { limit, mode: modeOf(former) });
    add("After", after.map, after.picture, { limit, mode: modeOf(after) });
    if (former && isSame && former.map.width === after.map.width && former.map.height === after.map.height) {
      const difference = measure(after.map.values.map((value, i) => value - former.map.values[i]), after.map.width, after.map.height, 0.99);
      // never stronger than ten times: of an input that was not changed, rounding is not a finding
      add("Difference", difference, null, { limit: Math.max(difference.limit, limit / 10), mode: "signed" });
    }
    part.maps.replaceChildren(...shown);
  }

  function compareUnits(former, isSame) {
    const strongest = Math.max(...[after, former].filter(Boolean).flatMap((fact) => fact.map.scores.map(Math.abs))) || 1;
    const line = (pairs) => {
      const units = pairs.map(([unit, cell, value, state = ""]) => [unit, cell, value, `${sideOf(value)} ${state}`]);
      return make("p", { class: "line" }, ...drawLine(units, strongest));
    };
    const pairs = ({ map }) => map.units.map((unit, i) => [unit, map.cells?.[i], map.scores[i]]);
    const shown = former ? [figure("Before", line(pairs(former)))] : [];
    shown.push(figure("After", line(pairs(after))));
    if (former && isSame) shown.push(figure("Difference", line(align(former.map, after.map))));
    part.maps.replaceChildren(...shown);
  }

  // Words that stand in both, by the longest common row of them, with the change of their values; the rest is new or gone.
  function align(old, now) {
    const [n, m] = [old.units.length, now.units.length];
    const lengths = Array.from({ length: n + 1 }, () => new Uint16Array(m + 1));
    for (let i = n - 1; i >= 0; i--) for (let j = m - 1; j >= 0; j--) lengths[i][j] = old.units[i] === now.units[j] ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    const rows = [];
    for (let i = 0, j = 0; i < n || j < m; ) {
      if (i < n && j < m && old.units[i] === now.units[j]) {
        const [was, is] = [old.cells?.[i], now.cells?.[j]];
        rows.push([now.units[j], was !== is ? `${was} → ${is}` : is, now.scores[j++] - old.scores[i++], was !== is ? "new" : ""]);
      } else if (i < n && (j === m || lengths[i + 1][j] >= lengths[i][j + 1])) rows.push([old.units[i], "", -old.scores[i++], "gone"]);
      else rows.push([now.units[j], "", now.scores[j++], "new"]);
    }
    return rows;
  }

  async function keep() {
    try {
      const name = part.name.value.trim() || `${opened.replace(/\.\w+$/, "") || "input"}-edited`;
      const { id, folder } = await (await post("/whatif/keep", JSON.stringify({ trial, name }))).json();
      const link = make("a", { href: `/whatif/kept?${new URLSearchParams({ id })}`, target: "_blank", rel: "noopener" }, make("bdi", {}, id));
      part.kept.append(make("li", {}, link));
      part.kept.parentElement.hidden = false;
      link.scrollIntoView({ block: "nearest" }); // at the end of the panel, where nobody would see it come
      say(`Kept as ${id} in ${folder}.`);
      part.keep.disabled = true;
    } catch (error) {
      say(error.message, true);
    }
  }

  // -- the panel -------------------------------------------------------------------------------------------------------

  const field = (words, control) => make("label", { class: "field" }, make("span", {}, words), control);

  function chooseClass(words, first) {
    const names = about.classes ?? [];
    const few = names.length > 0 && names.length <= SHORT;
    if (few) return make("select", { "aria-label": words }, ...first.map(([value, shown]) => make("option", { value }, shown)), ...names.map((value) => make("option", { value }, value)));
    return make("input", { type: "text", list: "whatif-classes", autocomplete: "off", maxlength: 200, placeholder: first[0][1], "aria-label": words });
  }

  function build() {
    editor = makeEditor();
    const button = (words, act, extra = {}) => {
      const element = make("button", { type: "button", ...extra }, words);
      element.addEventListener("click", act);
      return element;
    };
    const accepted = { picture: "image/*", words: ".txt,text/plain", bars: ".csv,.tsv,.json,text/csv" }[about.view];
    const file = make("input", { type: "file", accept: accepted, id: "whatif-file" });
    file.addEventListener("change", () => {
      if (file.files[0]) upload(file.files[0], file.files[0].name);
      file.value = "";
    });
    const thing = { picture: "an image", words: "a text", bars: "a row with its header" }[about.view];
    const classes = make("div", { class: "boxes" }, ...about.reference_classes.map((value) => make("label", { class: "check" }, make("input", { type: "checkbox", value }), make("bdi", {}, value))));
    Object.assign(part, {
      status: make("p", { class: "status", role: "status", "aria-live": "polite" }),
      progress: make("progress", { hidden: "", "aria-label": "References explained" }),
      prediction: make("section", { class: "prediction", "aria-label": "Prediction", "aria-live": "polite" }),
      target: chooseClass("Explained class", [["", about.target ?? "the predicted one"]]),
      against: chooseClass("Rather than which class", [["", about.against === null ? "none" : about.against === "next" || about.against === "auto" ? "the runner-up" : String(about.against)], ["next", "the runner-up"], ["none", "none: the output alone"]]),
      count: make("input", { type: "number", min: 1, max: about.most, placeholder: about.count ?? "up to 10", "aria-label": "How many references" }),
      classes,
      explain: make("button", { type: "submit", class: "main" }, "Explain"),
      cancel: button("Cancel", cancel, { hidden: "" }),
      name: make("input", { type: "text", maxlength: 80, autocomplete: "off", placeholder: "name" , "aria-label": "Name of what is kept" }),
      keep: button("Keep", keep, { disabled: "" }),
      former: make("select", {}, make("option", { value: "item" }, "the item in the store"), make("option", { value: "last" }, "the explanation before")),
      why: make("p", { class: "hint" }),
      maps: make("div", { class: `maps ${about.view}` }),
      numbers: make("table", { class: "numbers" }),
      references: make("ul", {}),
      kept: make("ul", {}),
    });
    part.former.addEventListener("change", compare);
    part.other = make("p", { class: "hint other", hidden: "" }, "Before explains ", make("bdi", {}), ", so there is no difference to show. ", button("Ask the same of this input", () => {
      askLike(part.former.value === "last" ? last : before);
      askModel(true);
    }));
    const settings = make("form", { class: "settings", "aria-label": "What is explained" },
      field("Explained", part.target), field("Rather than", part.against),
      ...(about.contrasts ? [field("References", part.count)] : []),
      ...(about.contrasts && about.reference_classes.length > 1 ? [make("details", { class: "which" }, make("summary", {}, "Classes of references"), classes)] : []),
      make("p", { class: "buttons" }, part.explain, part.cancel));
    settings.addEventListener("submit", (event) => {
      event.preventDefault();
      askModel(true);
    });
    part.results = make("section", { class: "results", hidden: "", "aria-label": "The explanation" },
      part.why, part.other, field("Compare with", part.former), part.maps, make("div", { class: "scroll" }, part.numbers),
      make("details", {}, make("summary", {}, "References"), part.references));
    const drop = make("p", { class: "drop" }, make("label", { for: "whatif-file", class: "upload" }, "Upload"), file, make("span", { class: "hint" }, `or drop or paste ${thing} here`));
    part.heading = make("h2", {});
    panel = make("section", { id: "whatif", class: about.view, "aria-label": "What if", tabindex: -1, hidden: "" },
      part.heading, ...about.notes.map((note) => make("p", { class: "notice" }, note)), drop, editor.element, settings,
      part.status, part.progress, part.prediction, part.results,
      make("div", { class: "keeping" }, part.name, part.keep, make("span", { class: "hint" }, `into ${about.kept}`)),
      make("section", { hidden: "", "aria-label": "Kept" }, make("h3", {}, "Kept"), part.kept),
      ...(about.classes ? [make("datalist", { id: "whatif-classes" }, ...about.classes.map((value) => make("option", { value })))] : []));
    $("detail").append(panel);
    panel.addEventListener("dragover", (event) => event.preventDefault());
    panel.addEventListener("drop", (event) => {
      event.preventDefault();
      const [first] = event.dataTransfer.files;
      if (first) upload(first, first.name);
      else take(event.dataTransfer.getData("text"));
    });
    addEventListener("paste", (event) => {
      if (panel.hidden || event.target.closest?.("input, textarea")) return;
      const [first] = event.clipboardData.files;
      if (first) upload(first, first.name);
      else take(event.clipboardData.getData("text"));
    });
    addEventListener("keydown", (event) => {
      if (panel.hidden || event.target.closest?.("input[type=text], textarea")) return;
      if ((event.ctrlKey || event.metaKey) && event.key === "z" && editor.undo) {
        event.preventDefault();
        editor.undo();
      }
    });
  }

  function take(text) {
    if (text && about.view !== "picture") upload(text, "");
  }

  const toggle = make("button", { type: "button", id: "try", "aria-pressed": "false", title: "Edit the item and explain it again" }, "What if");
  const fresh = make("button", { type: "button", id: "fresh" }, "New input");

  function begin() {
    one(".buttons", $("detail")).append(toggle);
    $("exports").prepend(fresh);
    toggle.addEventListener("click", () => {
      state.try = state.try && state.item ? "" : "1";
      writeAddress(true);
      showItem();
    });
    fresh.addEventListener("click", () => {
      Object.assign(state, { item: "", at: "", try: "1" });
      writeAddress(true);
      showItem();
    });
  }

  let turn = 0;
  async function show() {
    const isOpen = Boolean(state.try);
    toggle.setAttribute("aria-pressed", String(isOpen));
    toggle.hidden = !state.item;
    $("item").hidden = isOpen;
    if (!isOpen) {
      if (panel) panel.hidden = true;
      asked.abort();
      return;
    }
    const now = ++turn;
    if (!about) {
      const answer = await ask("/whatif/about");
      if (about) return show();
      about = answer;
      build();
    }
    panel.hidden = false;
    if (opened === state.item) return;
    clearTimeout(waiting);
    asked.abort();
    const content = state.item ? await ask(`/whatif/item?${new URLSearchParams({ id: state.item })}`) : { before: null };
    if (now !== turn) return;
    opened = state.item;
    [before, last, after, trial] = [null, null, null, null];
    if (content.before) before = { ...content.before, map: await openMap(content.before.map) };
    part.heading.replaceChildren(...(opened ? ["What if ", make("bdi", {}, opened), " were different?"] : ["A new input"]));
    part.results.hidden = true;
    part.prediction.replaceChildren();
    part.name.value = "";
    part.former.value = "item";
    part.keep.disabled = true;
    askLike(before);
    await fill(content);
    say(editor.isEmpty() ? (opened && about.view === "picture" ? "The image is not here: start ig2 serve with --source, or upload one." : `${invite()}, then explain it.`) : "");
    finish("open");
    if (!editor.isEmpty()) askModel(false);
    panel.dataset.opened = opened;
    panel.scrollTop = 0; // where the panel of another input was read to its end
    panel.focus({ preventScroll: true });
  }

  return { begin, show: () => show().catch(complain) };
})();
