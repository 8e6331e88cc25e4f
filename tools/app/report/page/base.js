// Elements, readable numbers, scales and ticks.
"use strict";

const svgNode = (name, attributes = {}, text) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== undefined) made.textContent = text;
  return made;
};

const node = (name, attributes = {}, ...children) => {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
};

const byId = (id) => document.getElementById(id);

const data = JSON.parse(byId("data").textContent);

// "1,234.5": separators between thousands before the point.
const grouped = (text) => {
  const [whole, rest] = text.split(".");
  return whole.replace(/\B(?=(\d{3})+$)/g, ",") + (rest === undefined ? "" : `.${rest}`);
};

// Formats with five significant digits: "0.89443", "38,050", "4.8e29".
const shown = (value) => {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(3).replace(/\.?0+e/, "e").replace("e+", "e");
  const rounded = size >= 1e5 ? Math.round(value) : Number(value.toPrecision(5));
  return grouped(String(rounded));
};

// Formats a value of a recipe or of an axis in the same way if it is a number.
const spelled = (text) => (String(text).trim() !== "" && Number.isFinite(Number(text)) ? shown(Number(text)) : text);

// Formats tick labels: "38.05M".
const brief = (value) => {
  const size = Math.abs(value);
  if (size >= 1e15) return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  const [unit, letter] = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e4, "k"]].find(([least]) => size >= least) || [1, ""];
  return letter === "" ? shown(value) : `${Number((value / (letter === "k" ? 1e3 : unit)).toPrecision(4))}${letter}`;
};

const shownBytes = (value) => {
  if (value === null || value === undefined) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  for (; value >= 999.5 && unit < 4; ++unit) value /= 1000;
  return `${shown(Number(value.toPrecision(4)))} ${units[unit]}`;
};

const shownSeconds = (value) => {
  if (value === null || value === undefined) return "–";
  const rounded = (number, digits) => shown(Number(number.toPrecision(digits)));
  if (value < 1) return `${rounded(value * 1000, 4)} ms`;
  if (value < 120) return `${rounded(value, 4)} s`;
  return value < 7200 ? `${rounded(value / 60, 3)} min` : `${rounded(value / 3600, 3)} h`;
};

// Returns about `count` round values between two bounds.
const ticks = (low, high, count) => {
  const rough = (high - low) / Math.max(1, count);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= 0.7 * rough);
  const values = [];
  for (let i = Math.ceil(low / step); i * step <= high * (1 + 1e-12); ++i) values.push(Number((i * step).toPrecision(12)));
  return values;
};

// Returns powers of ten and, if only few are in the range, multiples of them.
const logTicks = (low, high, most = 8) => {
  const inside = (multiples) => {
    const values = [];
    for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); ++power)
      for (const m of multiples) if (m * 10 ** power >= low && m * 10 ** power <= high) values.push(Number((m * 10 ** power).toPrecision(3)));
    return values;
  };
  const few = inside([1, 2, 5]), powers = inside([1]);
  if (few.length < 4) {
    const more = inside([1, 1.5, 2, 3, 4, 5, 7]);
    return more.length < 3 ? ticks(low, high, 4) : more.length <= most + 1 ? more : few;
  }
  return few.length <= most ? few : powers.filter((_, i) => i % Math.ceil(powers.length / most) === 0);
};

const scaled = (low, high, from, to, log) => {
  const at = log ? Math.log10 : (v) => v;
  const span = at(high) - at(low) || 1;
  return (value) => from + ((at(value) - at(low)) / span) * (to - from);
};

// Exponential moving average with bias correction.
const smoothed = (values, weight) => {
  let sum = 0, norm = 0;
  return values.map((v) => {
    if (v === null) return null;
    sum = weight * sum + (1 - weight) * v;
    norm = weight * norm + (1 - weight);
    return sum / norm;
  });
};

// Returns the index of the value in the sorted `xs` that is nearest to x.
const nearest = (xs, x) => {
  let low = 0, high = xs.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle; else high = middle;
  }
  return Math.abs(xs[low] - x) <= Math.abs(xs[high] - x) ? low : high;
};

// Interpolates a curve at x; null outside of the curve, and if a neighbouring point is a gap.
const between = (xs, ys, x) => {
  if (xs.length === 0 || x < xs[0] || x > xs[xs.length - 1]) return null;
  let i = nearest(xs, x);
  if (xs[i] === x) return ys[i];
  if (xs[i] > x) --i;
  if (ys[i] === null || ys[i + 1] === null) return null;
  return ys[i] + ((ys[i + 1] - ys[i]) * (x - xs[i])) / (xs[i + 1] - xs[i]);
};

// Returns the width of a chart text in pixels.
const pen = document.createElement("canvas").getContext("2d");
const widthOf = (text, font = "11px system-ui, 'DejaVu Sans', sans-serif") => {
  pen.font = font;
  return pen.measureText(text).width;
};
const fitted = (text, width) => {
  if (widthOf(text) <= width) return text;
  let kept = text;
  while (kept.length > 1 && widthOf(`${kept}…`) > width) kept = kept.slice(0, -1);
  return `${kept}…`;
};

// A line of comma-separated values (RFC 4180).
const csvLine = (cells) => cells.map((c) => (/[",\n\r]/.test(String(c)) ? `"${String(c).replace(/"/g, '""')}"` : String(c ?? ""))).join(",");
