// A canvas with one cell per node, coloured by a value from 0 to 1. The table below the canvas has the same values.

const GAP = 1;
const LEAST_CELL = 6;
const MOST_CELL = 34;
const STOPS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const LIGHT_FROM = 0.55;
const TEXT_FROM = 14;
const TABLE = Array.from({ length: 101 }, (_, index) => {
  const at = (index / 100) * (STOPS.length - 1);
  const low = Math.min(STOPS.length - 2, Math.floor(at));
  const part = STOPS[low].map((from, channel) => Math.round(from + (STOPS[low + 1][channel] - from) * (at - low)));
  return `rgb(${part.join(" ")})`;
});

/** Return the colour of a value from 0 to 1. */
export function colour(value) {
  return TABLE[Math.round(100 * Math.min(1, Math.max(0, value)))];
}

/** Return the colour of a mark on the colour of a value. */
export function ink(value) {
  return value > LIGHT_FROM ? "#000" : "#fff";
}

/**
 * The map. `chosen(index)` is called when a cell is chosen with the pointer, or with the arrow keys.
 *
 * Cells keep their place while the nodes stay, so that a change of one node is a change of one cell.
 */
export class HeatMap {
  constructor(label, chosen) {
    this.chosen = chosen;
    this.cells = [];
    this.selected = -1;
    this.frame = 0;
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    // A screen reader passes the arrow keys on to an application, and to nothing else that is drawn.
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-roledescription", "heat map");
    this.canvas.setAttribute("aria-label", label);
    this.canvas.addEventListener("click", (event) => {
      const index = this.at(event);
      if (index >= 0) this.select(index);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      const cell = this.cells[this.at(event)];
      const text = cell ? cell.text : "";
      if (this.canvas.title !== text) this.canvas.title = text;
    });
    this.canvas.addEventListener("keydown", (event) => this.move(event));
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.canvas);
    this.scheme = matchMedia("(prefers-color-scheme: dark)");
    this.redraw = () => this.draw();
    this.scheme.addEventListener("change", this.redraw);
  }

  /**
   * Show these cells: {fill, text, mark, ink}. `fill`: a colour; null: no value. `mark`: a letter, which cells that are
   * too small show as a line across; "" for none. `ink`: the colour of the mark.
   */
  set(cells, label) {
    this.cells = cells;
    this.canvas.setAttribute("aria-label", label);
    this.draw();
  }

  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.paint();
    });
  }

  paint() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    const room = Math.sqrt((width * innerHeight * 0.4) / Math.max(1, this.cells.length));
    this.size = Math.min(MOST_CELL, Math.max(LEAST_CELL, Math.floor(room)));
    this.columns = Math.max(1, Math.floor(width / this.size));
    const height = Math.max(1, Math.ceil(this.cells.length / this.columns)) * this.size;
    const scale = devicePixelRatio;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.height = `${height}px`;
    }
    const style = getComputedStyle(this.canvas);
    this.context = this.canvas.getContext("2d");
    this.colours = { none: style.getPropertyValue("--line"), text: style.color };
    this.context.setTransform(scale, 0, 0, scale, 0, 0);
    this.context.font = `${Math.floor(this.size * 0.65)}px ${style.fontFamily}`;
    this.context.textAlign = "center";
    this.context.textBaseline = "middle";
    this.context.clearRect(0, 0, width, height);
    for (let index = 0; index < this.cells.length; index += 1) this.paintCell(index);
    this.paintFrame();
  }

  paintCell(index) {
    const { context, colours } = this;
    const cell = this.cells[index];
    const x = (index % this.columns) * this.size;
    const y = Math.floor(index / this.columns) * this.size;
    const inner = this.size - GAP;
    context.fillStyle = cell.fill ?? colours.none;
    context.fillRect(x, y, inner, inner);
    if (!cell.mark) return;
    const own = cell.fill ? cell.ink : colours.text;
    if (this.size >= TEXT_FROM) {
      context.fillStyle = own;
      context.fillText(cell.mark, x + inner / 2, y + inner / 2 + 1);
      return;
    }
    context.strokeStyle = own;
    context.beginPath();
    context.moveTo(x + 1, y + 1);
    context.lineTo(x + inner - 1, y + inner - 1);
    context.stroke();
  }

  /** Draw a frame into the selected cell. */
  paintFrame() {
    if (this.selected < 0 || this.selected >= this.cells.length) return;
    const x = (this.selected % this.columns) * this.size;
    const y = Math.floor(this.selected / this.columns) * this.size;
    // Black and white side by side: one of them stands out from every colour of a cell.
    const frame = (colour, at, width) => {
      this.context.lineWidth = width;
      this.context.strokeStyle = colour;
      const edge = at + width / 2;
      this.context.strokeRect(x + edge, y + edge, this.size - GAP - 2 * edge, this.size - GAP - 2 * edge);
    };
    const width = this.size >= TEXT_FROM ? 2 : 1;
    frame("#000", 0, width);
    frame("#fff", width, width);
    this.context.lineWidth = 1;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left) / this.size);
    const index = Math.floor((event.clientY - box.top) / this.size) * this.columns + column;
    return column >= 0 && column < this.columns && index < this.cells.length ? index : -1;
  }

  move(event) {
    const all = this.cells.length;
    const steps = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns, Home: -all, End: all };
    const step = steps[event.key];
    if (step === undefined || !all || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    const first = event.key === "End" ? all - 1 : 0;
    this.select(this.selected < 0 ? first : Math.min(all - 1, Math.max(0, this.selected + step)));
  }

  select(index) {
    const before = this.selected;
    this.selected = index;
    // Only two cells change; a whole picture that is due anyway has both.
    if (!this.frame && this.context) {
      if (before >= 0 && before < this.cells.length) this.paintCell(before);
      this.paintFrame();
    }
    this.chosen(index);
  }

  /** Stop watching the size of the canvas and the colour scheme. */
  close() {
    this.observer.disconnect();
    this.scheme.removeEventListener("change", this.redraw);
    cancelAnimationFrame(this.frame);
  }
}
