// A table of any length, of which only the rows in view are in the document.

import { el, setText } from "./dom.js";

const OVERSCAN = 8;
const ROW_PX = 28;
// Rows of a long list come in several parts.
const COME_BACK_MS = 3000;

/**
 * The table. `columns`: {title, width, number, text(row), link(row)}; the first column names the row, with a text
 * that no other row has.
 *
 * Keys: the arrows, Page Up, Page Down, Home and End move from row to row; Tab leaves the table.
 */
export class List {
  constructor(label, columns) {
    this.columns = columns;
    this.rows = [];
    this.active = 0;
    this.shown = new Map();
    this.before = el("tr", { class: "spacer", "aria-hidden": "true" }, el("td", { colSpan: columns.length }));
    this.after = el("tr", { class: "spacer", "aria-hidden": "true" }, el("td", { colSpan: columns.length }));
    this.body = el("tbody", {}, this.before, this.after);
    this.table = el("table", {},
      el("caption", { class: "unseen" }, label),
      el("colgroup", {}, columns.map((column) => {
        const col = el("col");
        col.style.width = column.width;
        return col;
      })),
      el("thead", {}, el("tr", { "aria-rowindex": "1" }, columns.map((column) =>
        el("th", { scope: "col", class: column.number ? "number" : null }, column.title)))),
      this.body);
    this.none = el("p", { class: "none", hidden: true });
    this.element = el("div", { class: "scroll", tabIndex: 0, role: "region", "aria-label": label }, this.table, this.none);
    this.element.addEventListener("scroll", () => this.draw(), { passive: true });
    this.element.addEventListener("keydown", (event) => this.move(event));
    // A row that is opened is the one to come back to.
    this.left = history.state?.row ?? null;
    this.waitsUntil = performance.now() + COME_BACK_MS;
    this.element.addEventListener("click", (event) => {
      const row = event.target.closest("a")?.closest("tr");
      if (row) history.replaceState({ row: this.columns[0].text(this.rows[row.index]) }, "");
    });
    this.body.addEventListener("focusin", (event) => {
      const row = event.target.closest("tr");
      if (row?.index !== undefined) this.activate(row.index);
    });
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(this.element);
  }

  /** Show these rows from now on. `none`: the text if there are none. */
  set(rows, none = "") {
    const had = this.body.contains(document.activeElement);
    const name = this.columns[0].text;
    const active = this.rows[this.active];
    this.rows = rows;
    setText(this.none, none);
    this.none.hidden = rows.length > 0;
    this.table.setAttribute("aria-rowcount", String(rows.length + 1));
    const before = this.active;
    this.active = Math.min(before, Math.max(0, rows.length - 1));
    if (had && active) {
      // Rows come and go: the keyboard stays with its row, at the same height of the window.
      const isSame = rows[before] && name(rows[before]) === name(active);
      const at = isSame ? before : rows.findIndex((row) => name(row) === name(active));
      if (at >= 0 && at !== before) {
        this.active = at;
        this.space(this.after, rows.length);
        this.element.scrollTop += (at - before) * ROW_PX;
      }
    }
    this.draw();
    if (this.left !== null) this.comeBack();
  }

  /** Go to the row that was opened in this list before the way back. */
  comeBack() {
    const name = this.columns[0].text;
    // The user may have gone elsewhere meanwhile.
    const isFree = document.activeElement.matches("body, h1") && performance.now() < this.waitsUntil;
    const index = isFree ? this.rows.findIndex((row) => name(row) === this.left) : -1;
    if (index >= 0) this.go(index);
    if (index >= 0 || !isFree) this.left = null;
  }

  /** Give a column another title. */
  rename(column, title) {
    setText(this.table.tHead.rows[0].cells[column], title);
  }

  draw() {
    const height = this.element.clientHeight;
    const first = Math.max(0, Math.floor(this.element.scrollTop / ROW_PX) - OVERSCAN);
    const last = Math.min(this.rows.length, first + Math.ceil(height / ROW_PX) + 2 * OVERSCAN);
    const had = this.body.contains(document.activeElement);
    // Rows that stay in view stay in the document as they are: scrolling changes only the rows that come into view.
    const free = [];
    for (const [index, row] of this.shown) {
      if (index >= first && index < last) continue;
      this.shown.delete(index);
      row.remove();
      free.push(row);
    }
    let next = this.before.nextSibling;
    for (let index = first; index < last; index += 1) {
      let row = this.shown.get(index);
      if (!row) {
        row = free.pop() ?? this.make();
        this.shown.set(index, row);
        this.body.insertBefore(row, next);
      } else {
        next = row.nextSibling;
      }
      this.fill(row, index);
    }
    this.space(this.before, first);
    this.space(this.after, Math.max(0, this.rows.length - last));
    if (had) this.focus();
  }

  space(row, count) {
    const height = `${count * ROW_PX}px`;
    if (row.firstChild.style.height !== height) row.firstChild.style.height = height;
  }

  make() {
    return el("tr", {}, this.columns.map((column, index) => {
      const cell = el(index ? "td" : "th", { scope: index ? null : "row", class: column.number ? "number" : null });
      if (column.link) cell.append(el("a", { href: "#", tabIndex: -1 }));
      return cell;
    }));
  }

  fill(element, index) {
    const row = this.rows[index];
    if (element.index !== index) {
      element.index = index;
      element.setAttribute("aria-rowindex", String(index + 2));
    }
    this.columns.forEach((column, at) => {
      const cell = element.children[at];
      const text = column.text(row);
      if (!column.link) {
        setText(cell, text);
        if (cell.title !== text && text.length > 20) cell.title = text;
        return;
      }
      const link = cell.firstChild;
      setText(link, text);
      const href = column.link(row);
      if (link.getAttribute("href") !== href) link.setAttribute("href", href);
      const tab = index === this.active ? 0 : -1;
      if (link.tabIndex !== tab) link.tabIndex = tab;
    });
  }

  activate(index) {
    if (index === this.active) return;
    this.active = index;
    for (const row of this.shown.values()) {
      for (const link of row.querySelectorAll("a")) link.tabIndex = row.index === index ? 0 : -1;
    }
  }

  focus() {
    const row = this.shown.get(this.active);
    const target = row?.querySelector("a") ?? this.element;
    if (document.activeElement !== target) target.focus({ preventScroll: true });
  }

  move(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !this.rows.length) return;
    const page = Math.max(1, Math.floor(this.element.clientHeight / ROW_PX) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -this.rows.length, End: this.rows.length };
    const step = steps[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const isInside = this.body.contains(document.activeElement);
    const from = isInside ? this.active : this.active - Math.sign(step) * (Math.abs(step) === 1 ? 1 : 0);
    const to = Math.min(this.rows.length - 1, Math.max(0, from + step));
    this.go(to);
  }

  /** Bring a row into view, and the keyboard to it. */
  go(to) {
    this.activate(to);
    const top = to * ROW_PX;
    const bottom = top + 2 * ROW_PX - this.element.clientHeight;
    if (this.element.scrollTop > top) this.element.scrollTop = top;
    else if (this.element.scrollTop < bottom) this.element.scrollTop = bottom;
    this.draw();
    this.focus();
  }

  /** Stop watching the size of the element. */
  close() {
    this.observer.disconnect();
  }
}
