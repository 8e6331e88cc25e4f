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
    this.svg = svgNode("svg", { role: "img", "aria-label": title, class: "figure" });
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
  }

  // Returns the picture as a self-contained file. Without a theme it follows the colour scheme of the program that
  // shows it.
  svgText(theme) {
    const copy = this.svg.cloneNode(true), [, , width, height] = copy.getAttribute("viewBox").split(" ");
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
