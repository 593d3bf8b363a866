"use strict";

// Elements, numbers, maps and colours, for every page of ours: nothing here knows what a page shows.

const one = (selector, root = document) => root.querySelector(selector);
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));
const ellipsis = (word) => (word.length > 100 ? `${word.slice(0, 99)}…` : word); // as in the figures
const count = (n, thing) => `${n} ${thing}${n === 1 ? "" : "s"}`;

function furnish(element, attributes, ...children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
const make = (tag, attributes = {}, ...children) => furnish(document.createElement(tag), attributes, ...children);
const draw = (tag, attributes, ...children) =>
  furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, ...children);

// What a key stands for among these, if anything; the page then does not scroll.
function pick(event, moves) {
  if (event.key in moves) event.preventDefault();
  return moves[event.key];
}

// Three digits that count, a real minus, and no place to break.
function number(value) {
  if (value === 0) return "0";
  const exponent = Math.floor(Math.log10(Math.abs(value)));
  if (exponent >= -3 && exponent < 5) return value.toFixed(Math.max(0, 2 - exponent)).replace("-", "−");
  const raised = [...String(exponent)].map((digit) => "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"["-0123456789".indexOf(digit)]).join("");
  return `${(value / 10 ** exponent).toFixed(2)}\u00a0×\u00a010${raised}`.replace("-", "−");
}
const signed = (value) => (value > 0 ? "+" : "") + number(value);
function percent(share) {
  if (share >= 0.995 && share < 1) return ">99\u00a0%"; // what is not quite certain is not shown so
  // below zero: an arrival where the path ended farther away
  const [size, minus] = [Math.abs(share), share < 0 ? "−" : ""];
  if (size >= 1e6) return `${minus}millions of times`;
  if (size >= 10) return `${minus}${Math.round(size).toLocaleString("en")} times`;
  if (size > 0 && size < 0.001) return `${minus}below 0.1\u00a0%`;
  return `${minus}${(100 * size).toFixed(size >= 0.1 || !size ? 0 : 1)}\u00a0%`;
}

// Whether the signs of what was judged are not to be believed.
const isSignless = ({ marks }) => marks.trust?.mark === "poor";

// A file of JavaScript that calls receive(its name, its content): a page from the disk may read no other.
const expected = new Map();
const receive = (file, content) => expected.get(file)?.(content);
function readFile(file) {
  return new Promise((resolve, reject) => {
    const script = make("script", { src: file });
    const end = (settle, value) => {
      script.remove();
      expected.delete(file);
      settle(value);
    };
    expected.set(file, (content) => end(resolve, content));
    script.onerror = () => end(reject, new Error(`${file} is missing; it belongs beside this page.`));
    document.head.append(script);
  });
}

// -- the scores -------------------------------------------------------------------------------------------------------

const toBytes = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)); // of base64

async function unpack(scores) {
  if (Array.isArray(scores)) return measure(Float64Array.from(scores), scores.length, 1, 1);
  const stream = new Blob([toBytes(scores.data)]).stream().pipeThrough(new DecompressionStream("deflate"));
  const planes = new Uint8Array(await new Response(stream).arrayBuffer());
  const [height, width] = scores.shape;
  const size = width * height;
  const values = new Float64Array(size);
  for (let i = 0; i < size; i++) {
    const whole = scores.bits <= 8 ? (planes[i] << 24) >> 24 : (((planes[size + i] << 8) | planes[i]) << 16) >> 16;
    values[i] = whole * scores.scale;
  }
  // a few extreme pixels must not leave the rest without colour
  return measure(values, width, height, 0.99);
}

function measure(values, width, height, share) {
  const sorted = values.map(Math.abs).sort();
  const largest = sorted[sorted.length - 1];
  return { values, width, height, sorted, largest, limit: quantile(sorted, share) || largest || 1 };
}

// The map on a larger scale, as attribution.smooth(sigma) in Python: a Gaussian cut at four sigma over the map mirrored at its
// edges, which shares each value out among its neighbours and keeps the sum.
function smooth(map, sigma) {
  if (sigma === 0) return map;
  map.kept ??= new Map();
  if (!map.kept.has(sigma)) {
    const across = blur(map.values, map.width, map.height, sigma, 1, map.width);
    const both = blur(across, map.height, map.width, sigma, map.width, 1);
    map.kept.set(sigma, { ...measure(both, map.width, map.height, 0.99), smooth: true });
  }
  return map.kept.get(sigma);
}

function blur(values, length, lines, sigma, step, stride) {
  const reach = Math.floor(4 * sigma + 0.5);
  const weights = Float64Array.from({ length: 2 * reach + 1 }, (_, i) => Math.exp(-((i - reach) ** 2) / (2 * sigma * sigma)));
  const total = weights.reduce((sum, weight) => sum + weight);
  const mirrored = Int32Array.from({ length: length + 2 * reach }, (_, i) => {
    const place = (((i - reach) % (2 * length)) + 2 * length) % (2 * length);
    return (place < length ? place : 2 * length - 1 - place) * step;
  });
  const result = new Float64Array(values.length);
  for (let line = 0; line < lines; line++) {
    for (let i = 0; i < length; i++) {
      let sum = 0;
      for (let j = 0; j < weights.length; j++) sum += weights[j] * values[line * stride + mirrored[i + j]];
      result[line * stride + i * step] = sum / total;
    }
  }
  return result;
}

const quantile = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];

function readPixels(picture, width, height) {
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d", { willReadFrequently: true });
  if (picture) {
    context.imageSmoothingEnabled = Math.min(picture.naturalWidth, picture.naturalHeight) > 64;
    context.imageSmoothingQuality = "high";
    context.drawImage(picture, 0, 0, width, height);
  } else {
    context.fillStyle = "#f7f7f7";
    context.fillRect(0, 0, width, height);
  }
  return context.getImageData(0, 0, width, height);
}

// -- colours ----------------------------------------------------------------------------------------------------------

function ramp(...stops) {
  const colours = stops.map((stop) => [1, 3, 5].map((at) => parseInt(stop.slice(at, at + 2), 16)));
  return Array.from({ length: 256 }, (_, i) => {
    const place = (i / 255) * (colours.length - 1);
    const at = Math.min(colours.length - 2, Math.floor(place));
    return colours[at].map((low, channel) => low + (colours[at + 1][channel] - low) * (place - at));
  });
}
const colours = {
  positive: ramp("#f7f7f7", "#fbd3bf", "#f29a78", "#d6503f", "#a8102a"),
  negative: ramp("#f7f7f7", "#cce2f0", "#84bbdb", "#3583bd", "#17549c"),
  magnitude: ramp("#f7f7f7", "#fbdc9e", "#f5954f", "#c23a6c", "#4d136f"),
};

// Letters stay readable on colours up to this opaque, on light and on dark paper (WCAG AA).
const ink = (opacity) => 0.7 * opacity;
const sideOf = (value, mode) => (mode === "magnitude" ? mode : value < 0 ? "against" : "for");

// For each of `many` places along a side, the two of `few` it lies between and its share of the second; or the one it lies in.
function places(many, few, smooth) {
  const [first, second, share] = [new Int32Array(many), new Int32Array(many), new Float64Array(many)];
  for (let i = 0; i < many; i++) {
    const at = ((i + 0.5) * few) / many - (smooth ? 0.5 : 0);
    first[i] = Math.max(0, Math.floor(at));
    second[i] = smooth ? Math.min(few - 1, first[i] + 1) : first[i];
    share[i] = smooth ? clamp(at - first[i], 0, 1) : 0;
  }
  return { first, second, share };
}

function paint(canvas, base, map, { limit, mode, opacity, cutoff }) {
  const { width, height, data } = base;
  if (canvas.width !== width) canvas.width = width;
  if (canvas.height !== height) canvas.height = height;
  canvas.style.imageRendering = width < 96 ? "pixelated" : "";
  const context = canvas.getContext("2d");
  const picture = context.createImageData(width, height);
  const drawn = picture.data;
  const { values } = map;
  const positive = colours[mode === "magnitude" ? mode : "positive"];
  const negative = colours[mode === "magnitude" ? mode : "negative"];
  // weak pixels let the picture through and strong ones cover it; at full opacity the map alone is left
  const cover = Float64Array.from({ length: 256 }, (_, i) => 1 - (1 - opacity) ** (0.06 + (3 * i) / 255));
  const [grey, pale] = [Math.min(1, opacity * 1.2), opacity / 3];
  const [across, down] = [places(width, map.width, map.smooth), places(height, map.height, map.smooth)];
  let at = 0;
  for (let y = 0; y < height; y++) {
    const [upper, lower, dy] = [down.first[y] * map.width, down.second[y] * map.width, down.share[y]];
    for (let x = 0; x < width; x++, at += 4) {
      const left = across.first[x];
      const right = across.second[x];
      const dx = across.share[x];
      const above = values[upper + left] + (values[upper + right] - values[upper + left]) * dx;
      const below = values[lower + left] + (values[lower + right] - values[lower + left]) * dx;
      const value = above + (below - above) * dy;
      const strength = Math.abs(value);
      const level = Math.min(255, Math.round((255 * strength) / limit));
      const colour = (value < 0 ? negative : positive)[level];
      const share = strength < cutoff ? 0 : cover[level];
      const luma = 0.3 * data[at] + 0.59 * data[at + 1] + 0.11 * data[at + 2];
      for (let channel = 0; channel < 3; channel++) {
        const own = data[at + channel];
        let under = own + (luma - own) * grey;
        under += (245 - under) * pale;
        drawn[at + channel] = under + (colour[channel] - under) * share;
      }
      drawn[at + 3] = 255;
    }
  }
  context.putImageData(picture, 0, 0);
}
