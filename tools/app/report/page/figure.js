// The frame of a chart. Title, axes with units and legend are part of the picture, so that a screenshot or a saved file
// contains everything. A chart is saved as SVG, PNG or CSV.

let figures = [];  // all charts of the page
let clips = 0;     // numbers the clip paths of charts

// One style for the page and for saved files. `colour` maps a name in style.css to its value.
const figureStyle = (colour) => [
  `text{fill:${colour("--faint")};font-size:11px}`, `.title{fill:${colour("--ink")};font-size:13px;font-weight:600}`,
  `.value{fill:${colour("--ink")}}`, `.axis{stroke:${colour("--line")}}`, `.border{fill:none;stroke:${colour("--line")}}`,
  `.curve{fill:none;stroke-width:1.8;stroke-linejoin:round}`, `.best{stroke-width:2.8}`, `.raw,.faint{fill:none;stroke-width:1;opacity:.4}`,
  `.floor{fill:none;stroke:${colour("--faint")};stroke-width:1.4;stroke-dasharray:1 4;stroke-linecap:round}`,
  `.band{opacity:.18;stroke:none}`, `.chosen{fill:none;stroke:${colour("--ink")};stroke-width:2}`,
  `.label{paint-order:stroke;stroke:${colour("--panel")};stroke-width:4px;stroke-linejoin:round}`, `.ground{fill:${colour("--panel")}}`,
  ...Array.from({ length: kColours }, (_, i) => `.s${i}{stroke:${colour(`--c${i}`)}}.f${i}{fill:${colour(`--c${i}`)}}`),
];

// Returns the colours of a theme, whichever theme is shown.
const paletteOf = (theme) => {
  const root = document.documentElement, before = root.dataset.theme;
  root.dataset.theme = theme;
  const style = getComputedStyle(root), colours = {};
  for (const name of ["--ink", "--faint", "--line", "--panel", ...Array.from({ length: kColours }, (_, i) => `--c${i}`)])
    colours[name] = style.getPropertyValue(name).trim();
  root.dataset.theme = before;
  return (name) => colours[name];
};

const saveFile = (name, content, type) => {
  const link = document.createElement("a");
  link.download = name;
  link.href = URL.createObjectURL(new Blob([content], { type }));
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
};

class Figure {
  constructor(host, name, title) {
    this.name = name;
    this.title = title;
    this.clip = `clip${++clips}`;
    this.reading = node("span", { class: "reading" });
    const save = (kind, what) => {
      const button = node("button", { type: "button", title: `save this chart as ${kind}` }, kind);
      button.addEventListener("click", what);
      return button;
    };
    const buttons = node("span", { class: "save" }, save("SVG", () => saveFile(this.fileName("svg"), this.svgText(), "image/svg+xml")),
                         save("PNG", () => this.savePng()), save("CSV", () => saveFile(this.fileName("csv"), this.csv(), "text/csv")));
    this.svg = svgNode("svg", { role: "img", "aria-label": title, class: "figure", tabindex: 0 });
    this.targets = [];  // parts of the picture that have values: {element, rows, look}
    this.fresh = [];  // the same of the picture that is being drawn
    this.target = -1;
    this.svg.addEventListener("keydown", (event) => this.pressed(event));
    this.svg.addEventListener("blur", () => this.leave());
    this.note = node("p", { class: "hint" });
    this.note.hidden = true;
    this.card = node("div", { class: "card", "data-curve": name }, node("div", { class: "bar" }, this.reading, buttons), this.svg, this.note);
    host.append(this.card);
    figures.push(this);
  }

  fileName(ending) {
    return `${`${data.title} ${this.name}`.replace(/[^A-Za-z0-9.=-]+/g, "_").replace(/^_/, "").slice(-90)}.${ending}`;
  }

  say(text) {
    this.note.textContent = text;
    this.note.hidden = !text;
  }

  // Shows values, the result of `rows`, while the pointer is at an element, or the arrow keys have chosen it. `look`
  // changes the element meanwhile.
  pointOut(element, rows, look = () => {}) {
    element.addEventListener("pointermove", (event) => (look(true), tip(event, rows())));
    element.addEventListener("pointerleave", () => (look(false), tip(null)));
    this.fresh.push({ element, rows, look });
  }

  // While a chart has the focus, left and right read one value after the other, Home and End the first and the last.
  pressed(event) {
    const by = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") return this.leave();
    if (by === undefined) return;
    event.preventDefault();
    this.move(by);
  }

  move(by) {
    if (this.targets.length === 0) return;
    this.targets[this.target]?.look(false);
    this.target = Math.min(this.targets.length - 1, Math.max(0, this.target + by));
    const { element, rows, look } = this.targets[this.target], box = element.getBoundingClientRect();
    look(true);
    tip({ clientX: box.left + box.width / 2, clientY: box.top + box.height / 2 }, rows());
  }

  leave() {
    this.targets[this.target]?.look(false);
    this.target = -1;
    tip(null);
  }

  get width() {
    return Math.max(240, Math.round(this.svg.clientWidth || 400));
  }

  // Distributes entries {label, style, dash, kind: line, floor, box or note} to rows that fit into `width`: [[entry
  // with x], ...].
  legendRows(entries, width) {
    const rows = [[]];
    let x = 0;
    for (const entry of entries) {
      const label = fitted(entry.label, width - 34), size = 34 + widthOf(label);
      if (x > 0 && x + size > width) rows.push([]), (x = 0);
      rows[rows.length - 1].push({ ...entry, label, x });
      x += size + 8;
    }
    return entries.length > 0 ? rows : [];
  }

  legendParts(rows, left, top) {
    const parts = [];
    rows.forEach((row, r) => row.forEach((entry) => {
      const x = left + entry.x, y = top + 16 * r;
      if (entry.kind === "line")
        parts.push(svgNode("line", { x1: x, x2: x + 24, y1: y - 4, y2: y - 4, class: `curve s${entry.style % kColours}${entry.best ? " best" : ""}`,
                                     "stroke-dasharray": entry.dash || "none" }));
      else if (entry.kind === "floor")
        parts.push(svgNode("line", { x1: x, x2: x + 24, y1: y - 4, y2: y - 4, class: "floor" }));
      else if (entry.kind === "box")
        parts.push(svgNode("rect", { x: x + 8, y: y - 10, width: 12, height: 11, class: `f${entry.style % kColours}` }));
      parts.push(svgNode("text", { x: entry.kind === "note" ? x : x + 28, y, class: "key" }, entry.label));
    }));
    return parts;
  }

  // Returns the title and axis titles; `box`: {left, right, top, bottom} of the plot.
  titles(box, xTitle, yTitle, width) {
    const parts = [svgNode("text", { class: "title", x: 6, y: 15 }, fitted(this.title, (width - 12) / 1.35))];
    parts.push(svgNode("text", { class: "xtitle", x: (box.left + box.right) / 2, y: box.bottom + 31, "text-anchor": "middle" }, xTitle));
    if (yTitle)
      parts.push(svgNode("text", { class: "ytitle", transform: `translate(13 ${(box.top + box.bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, yTitle));
    return parts;
  }

  place(width, height, parts) {
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("height", height);
    this.svg.replaceChildren(...parts);
    [this.targets, this.fresh, this.target] = [this.fresh, [], -1];
  }

  // Returns the picture as a self-contained file. Without a theme it follows the colour scheme of the program that
  // shows it.
  svgText(theme) {
    const copy = this.svg.cloneNode(true), [, , width, height] = copy.getAttribute("viewBox").split(" ");
    copy.removeAttribute("tabindex");
    for (const overlay of copy.querySelectorAll(".overlay")) overlay.remove();
    for (const [key, value] of Object.entries({ width, height, "font-family": "system-ui, 'DejaVu Sans', Helvetica, Arial, sans-serif" })) copy.setAttribute(key, value);
    const dark = theme ? "" : `@media (prefers-color-scheme: dark){${figureStyle(paletteOf("dark")).join("")}}`;
    copy.prepend(svgNode("style", {}, `\n${figureStyle(paletteOf(theme || "light")).join("\n")}\n${dark}\n`),
                 svgNode("rect", { class: "ground", width, height, rx: 8 }));
    return new XMLSerializer().serializeToString(copy).replace(/<(path|text|line|rect|g|style|clipPath)/g, "\n<$1") + "\n";
  }

  // Saves with twice the resolution of the screen, in the colours of the screen.
  savePng() {
    const image = new Image(), [, , width, height] = this.svg.getAttribute("viewBox").split(" ").map(Number);
    image.addEventListener("load", () => {
      const canvas = node("canvas", { width: 2 * width, height: 2 * height });
      canvas.getContext("2d").drawImage(image, 0, 0, 2 * width, 2 * height);
      canvas.toBlob((blob) => saveFile(this.fileName("png"), blob, "image/png"));
    });
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(this.svgText(document.documentElement.dataset.theme))}`;
  }
}
