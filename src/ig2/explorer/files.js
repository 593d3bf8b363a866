"use strict";
// Where the explorer's data come from: here the files of a site that ig2 export wrote. It answers what the server answers,
// from columns that are read once and rows that are read when they are looked at; tests compare the two, answer by answer.

const BINS = 32;
const MOST_CLASSES = 12; // of a confusion matrix
const FORMATS = ["csv"];

const kept = new Map(); // what was read, by its name
function read(name) {
  if (!kept.has(name)) {
    const reading = readFile(`data/${name}.js`);
    reading.catch(() => kept.delete(name)); // so that it is tried again
    kept.set(name, reading);
  }
  return kept.get(name);
}

let table = null;
async function readTable() {
  if (table) return table;
  const { columns, texts, labels, predictions, right, distributions } = await read("columns");
  for (const column of Object.values(columns)) {
    // JSON has no word for these
    if (column.type !== "text") column.cells = column.cells.map((cell) => (typeof cell === "string" ? Number(cell) : cell));
  }
  const ids = columns.id.cells;
  table = {
    columns, labels, predictions, right, distributions, ids,
    texts: (texts ?? ids).map((text) => text.toLowerCase()),
    places: new Map(ids.map((id, i) => [id, i])),
  };
  return table;
}

// -- questions --------------------------------------------------------------------------------------------------------

const ANSWERS = {
  "/api/stores": () => read("stores"),
  "/api/overview": async (query) => summarise(await readTable(), await find(query)),
  "/api/rows": async (query) => {
    const places = await find(query);
    const [start, count] = [Number(query.get("start") ?? 0), Number(query.get("count") ?? 30)];
    const rows = await Promise.all(places.slice(start, start + count).map(readRow));
    return { total: places.length, start, rows };
  },
  "/api/place": async (query) => {
    const { places } = await readTable();
    if (!places.has(query.get("id"))) throw new Error(`there is no item '${query.get("id")}'`);
    const place = (await find(query)).indexOf(places.get(query.get("id")));
    return { place: place < 0 ? null : place };
  },
  "/api/map": (query) => read(`map-${query.get("layout") || "pca"}`),
  "/api/selection": async (query) => {
    const bytes = new Uint8Array(Math.ceil((await readTable()).ids.length / 8));
    for (const place of await find(query)) bytes[place >> 3] |= 1 << (place & 7);
    return { bits: btoa(bytes.reduce((text, byte) => text + String.fromCharCode(byte), "")) };
  },
  "/api/clusters": () => read("clusters"),
  "/api/item": async (query) => readFile(`items/${(await readTable()).places.get(query.get("id"))}.js`), // kept where it is drawn
};

async function ask(path, signal) {
  const [name, query] = path.split("?");
  const answer = await ANSWERS[name](new URLSearchParams(query));
  signal?.throwIfAborted();
  return answer;
}

async function readRow(place) {
  const { chunk } = await read("stores");
  return (await read(`rows/${Math.floor(place / chunk)}`))[place % chunk];
}

const pictureAddress = ({ picture }) => picture; // as data: a page from the disk could not draw on a file

// -- which items ------------------------------------------------------------------------------------------------------

async function find(query) {
  const { columns, texts, labels, predictions, ids } = await readTable();
  const get = (name) => query.get(name) ?? "";
  const conditions = [];
  if (get("where").trim()) conditions.push(parseCondition(get("where"), columns));
  if (get("text")) {
    const text = get("text").toLowerCase();
    conditions.push((i) => texts[i].includes(text));
  }
  for (const [name, low, high] of get("ranges").split(",").filter(Boolean).map((piece) => piece.split(":"))) {
    const { cells } = findColumn(columns, name);
    conditions.push((i) => cells[i] !== null && cells[i] >= Number(low) && cells[i] <= Number(high));
  }
  if (get("cell")) {
    const [label, prediction] = JSON.parse(get("cell"));
    conditions.push((i) => labels[i] === label && predictions[i] === prediction);
  }
  if (get("brush")) {
    const [left, top, right, bottom] = get("brush").split(",").map(Number);
    const { x, y } = await readPoints(get("layout") || "pca");
    conditions.push((i) => x[i] >= left && x[i] <= right && y[i] >= top && y[i] <= bottom);
  }
  if (get("cluster")) {
    const { cluster } = await readPoints("pca");
    conditions.push((i) => cluster[i] === Number(get("cluster")));
  }
  const places = [...ids.keys()].filter((i) => conditions.every((fulfils) => fulfils(i) === true));
  return get("sort") ? sortPlaces(places, get("sort"), columns) : places;
}

async function readPoints(layout) {
  const map = await read(`map-${layout}`);
  if (!map.count) return { x: [], y: [], cluster: [] };
  const there = toBytes(map.there);
  const share = (text) => Float64Array.from(new Uint16Array(toBytes(text).buffer), (whole, i) => (there[i] ? whole / 65535 : NaN));
  const cluster = Int16Array.from(toBytes(map.cluster), (number, i) => (there[i] ? number : -1));
  return { x: share(map.x), y: share(map.y), cluster };
}

function findColumn(columns, name) {
  if (!Object.hasOwn(columns, name)) throw new Error(`there is no column '${name}': there are ${Object.keys(columns).join(", ")}`);
  return columns[name];
}

// Texts by their letters' numbers, as the server has them: JavaScript's own order is another one beyond 65,535.
function order(a, b) {
  if (typeof a !== "string") return a - b;
  const [first, second] = [[...a], [...b]];
  const at = first.findIndex((letter, i) => letter !== second[i]);
  if (at < 0) return first.length - second.length;
  return at >= second.length ? 1 : first[at].codePointAt(0) - second[at].codePointAt(0);
}

function sortPlaces(places, sort, columns) {
  const { cells } = findColumn(columns, sort.replace(/^-/, ""));
  const way = sort.startsWith("-") ? -1 : 1;
  const isEmpty = (i) => cells[i] === null || Number.isNaN(cells[i]);
  const there = places.filter((i) => !isEmpty(i)).sort((a, b) => way * order(cells[a], cells[b]));
  return [...there, ...places.filter(isEmpty)];
}

// -- conditions -------------------------------------------------------------------------------------------------------

const EXPECTED = "columns, numbers, texts in quotes, < <= > >= == != in, `is None`, abs(), + - * /, and, or, not";
const TOKEN = /\s*(?:(\d[\d_]*\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([\p{L}_][\p{L}\p{N}_]*)|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|(<=|>=|==|!=|[<>()[\]{},+\-*/]))/uy;

// Returns a function of an item's place: true, false, or null where a cell that it compares is empty.
function parseCondition(text, columns) {
  const tokens = split(text);
  let at = 0;
  const refuse = (why) => {
    throw new Error(`the condition '${text}' cannot be used (${why}): expected ${EXPECTED}`);
  };
  const isNext = (...words) => words.includes(tokens[at]?.word);
  const take = (word) => (isNext(word) ? tokens[at++] : refuse(`${tokens[at]?.word ?? "its end"} instead of ${word}`));
  const expect = (part, ...types) => (types.includes(part.type) ? part : refuse(`a ${part.type} instead of a ${types[0]}`));

  function join(next, word, end) {
    let part = next();
    while (isNext(word)) {
      take(word);
      const [left, right] = [expect(part, "truth"), expect(next(), "truth")];
      const value = (i) => {
        const [a, b] = [left.value(i), right.value(i)];
        return a === end || b === end ? end : a === null || b === null ? null : !end;
      };
      part = { type: "truth", value };
    }
    return part;
  }
  const either = () => join(both, "or", true);
  const both = () => join(negation, "and", false);
  function negation() {
    if (!isNext("not")) return comparison();
    take("not");
    const { value } = expect(negation(), "truth");
    return { type: "truth", value: (i) => (value(i) === null ? null : !value(i)) };
  }

  function comparison() {
    const parts = [];
    let left = sum();
    while (isNext("<", "<=", ">", ">=", "==", "!=", "is", "in", "not")) {
      let word = tokens[at++].word;
      if (word === "is" && isNext("not")) word += ` ${tokens[at++].word}`;
      if (word === "not") word += ` ${take("in").word}`;
      const [part, right] = compare(left, word);
      parts.push(part);
      left = right;
    }
    if (!parts.length) return left;
    const values = parts.map(({ value }) => value);
    const value = (i) => {
      const answers = values.map((one) => one(i));
      return answers.includes(false) ? false : answers.includes(null) ? null : true;
    };
    return { type: "truth", value };
  }

  function compare(left, word) {
    const isTurned = ["!=", "is not", "not in"].includes(word);
    const turn = (test) => (i) => test(i) !== isTurned;
    if (isNext("None") && ["is", "is not", "==", "!="].includes(word)) {
      take("None");
      return [{ type: "truth", value: turn((i) => left.value(i) === null) }, { type: "nothing" }];
    }
    if (word.startsWith("is")) refuse("is without None");
    if (word.endsWith("in")) {
      const items = list();
      for (const item of items) if (item !== null && typeof item !== (left.type === "text" ? "string" : "number")) refuse(`${item} beside a ${left.type}`);
      return [{ type: "truth", value: turn((i) => items.includes(left.value(i))) }, { type: "nothing" }];
    }
    const right = sum();
    if ((left.type === "text") !== (right.type === "text") || [left, right].some(({ type }) => type === "truth" || type === "nothing")) refuse(`a ${left.type} beside a ${right.type}`);
    const tests = { "<": (way) => way < 0, "<=": (way) => way <= 0, ">": (way) => way > 0, ">=": (way) => way >= 0, "==": (way) => way === 0, "!=": (way) => way !== 0 };
    const value = (i) => {
      const [a, b] = [left.value(i), right.value(i)];
      return a === null || b === null ? null : tests[word](a === b ? 0 : order(a, b)); // infinities are equal to themselves
    };
    return [{ type: "truth", value }, right];
  }

  function list() {
    const end = { "(": ")", "[": "]", "{": "}" }[tokens[at]?.word] ?? refuse("in without a list");
    const items = [];
    at++;
    while (!isNext(end)) {
      const minus = isNext("-") ? tokens[at++] : null;
      const token = tokens[at++];
      if (token === undefined || (token.constant === undefined && token.word !== "None")) refuse("its list");
      items.push(token.word === "None" ? null : minus ? -token.constant : token.constant);
      if (!isNext(end)) take(",");
    }
    at++;
    return items;
  }

  function calculate(next, ...words) {
    let part = next();
    while (isNext(...words)) {
      const { word } = tokens[at++];
      const [left, right] = [expect(part, "number", "integer"), expect(next(), "number", "integer")];
      const value = (i) => {
        const [a, b] = [left.value(i), right.value(i)];
        if (a === null || b === null) return null;
        return word === "+" ? a + b : word === "-" ? a - b : word === "*" ? a * b : a / b;
      };
      part = { type: "number", value };
    }
    return part;
  }
  const sum = () => calculate(product, "+", "-");
  const product = () => calculate(factor, "*", "/");

  function factor() {
    if (isNext("-")) {
      take("-");
      const { type, value } = expect(factor(), "number", "integer");
      return { type, value: (i) => (value(i) === null ? null : -value(i)) };
    }
    if (isNext("(")) {
      take("(");
      const part = either();
      take(")");
      return part;
    }
    const token = tokens[at++] ?? refuse("it ends too early");
    if (token.constant !== undefined) return { type: token.type, value: () => token.constant };
    if (token.word === "abs" && isNext("(")) {
      take("(");
      const { type, value } = expect(sum(), "number", "integer");
      take(")");
      return { type, value: (i) => (value(i) === null ? null : Math.abs(value(i))) };
    }
    if (!token.name) refuse(token.word);
    const { type, cells } = findColumn(columns, token.word);
    return { type, value: (i) => cells[i] };
  }

  function split(text) {
    const tokens = [];
    const end = text.trimEnd().length;
    for (TOKEN.lastIndex = 0; TOKEN.lastIndex < end; ) {
      const from = TOKEN.lastIndex;
      const match = TOKEN.exec(text);
      if (!match) throw new Error(`the condition '${text}' cannot be read at '${text.slice(from, from + 20).trim()}': expected ${EXPECTED}`);
      const [, digits, name, quoted, sign] = match;
      if (digits !== undefined) tokens.push({ type: /^[\d_]+$/.test(digits) ? "integer" : "number", constant: Number(digits.replaceAll("_", "")) });
      else if (quoted !== undefined) tokens.push({ type: "text", constant: unquote(quoted) });
      else tokens.push({ word: name ?? sign, name: name !== undefined });
    }
    return tokens;
  }

  const { type, value } = either();
  if (at < tokens.length) refuse(tokens[at].word ?? tokens[at].constant);
  if (type !== "truth") refuse(`it is a ${type}`);
  return value;
}

const unquote = (text) => text.slice(1, -1).replace(/\\(.)/gs, (_, letter) => ({ n: "\n", t: "\t", r: "\r" })[letter] ?? letter);

// -- the overview -----------------------------------------------------------------------------------------------------

function summarise({ columns, labels, predictions, right, distributions, ids }, places) {
  const known = places.filter((i) => right[i] >= 0);
  return {
    total: ids.length,
    selected: places.length,
    failed: columns.error ? places.filter((i) => columns.error.cells[i] !== null).length : 0,
    labelled: known.length,
    right: known.filter((i) => right[i] === 1).length,
    confusion: confuse(known, labels, predictions),
    distributions: distributions.map((name) => distribute(name, columns[name].cells, places)),
  };
}

const dropEmpty = (numbers) => numbers.filter((value) => value !== null && Number.isFinite(value));

function distribute(name, cells, places) {
  const sorted = Float64Array.from(dropEmpty(cells)).sort();
  const at = (share) => {
    const place = share * (sorted.length - 1);
    const [low, part] = [Math.floor(place), place - Math.floor(place)];
    const [a, b] = [sorted[low], sorted[Math.min(low + 1, sorted.length - 1)]];
    return part < 0.5 ? a + (b - a) * part : b - (b - a) * (1 - part);
  };
  const low = at(0.005);
  const high = at(0.995) > low ? at(0.995) : low + 1;
  const step = (high - low) / BINS;
  const edges = Array.from({ length: BINS }, (_, i) => i * step + low);
  const count = (numbers) => {
    const times = new Array(BINS).fill(0);
    for (const value of dropEmpty(numbers)) {
      let bin = Math.min(BINS - 1, Math.max(0, Math.floor((value - low) / step)));
      while (bin > 0 && value < edges[bin]) bin--;
      while (bin < BINS - 1 && value >= edges[bin + 1]) bin++;
      times[bin]++;
    }
    return times;
  };
  return { name, low, high, least: sorted[0], most: sorted.at(-1), all: count(cells), selected: count(places.map((i) => cells[i])) };
}

function confuse(known, labels, predictions) {
  if (!known.length) return null;
  const times = new Map();
  for (const i of known) for (const name of [labels[i], predictions[i]]) times.set(name, (times.get(name) ?? 0) + 1);
  const names = [...times.keys()].sort(order);
  const shown = [...names].sort((a, b) => times.get(b) - times.get(a)).slice(0, MOST_CLASSES).sort(order);
  const others = names.length > shown.length;
  const places = new Map(names.map((name) => [name, shown.includes(name) ? shown.indexOf(name) : shown.length]));
  const counts = Array.from({ length: shown.length + others }, () => new Array(shown.length + others).fill(0));
  for (const i of known) counts[places.get(labels[i])][places.get(predictions[i])]++;
  return { classes: others ? [...shown, "other classes"] : shown, counts, others };
}

// -- to take along ----------------------------------------------------------------------------------------------------

async function fetchExport(format, question) {
  const { columns } = await readTable();
  const places = await find(question);
  // a spreadsheet would run a text that starts like a formula
  const cell = (value) => {
    if (typeof value !== "string") return value === null ? "" : String(value);
    const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const names = Object.keys(columns);
  const lines = [names, ...places.map((i) => names.map((name) => columns[name].cells[i]))].map((cells) => cells.map(cell).join(","));
  const [first] = (await read("stores")).stores;
  return [`${first.name.replaceAll("/", "-")}-selection.csv`, new Blob([lines.join("\r\n"), "\r\n"], { type: "text/csv" })];
}
