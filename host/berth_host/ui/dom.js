// Makes elements, and the texts that several views share.

const LONG = 1000;
const LONG_SHOWN = 300;

/** Return an element. `props`: properties and attributes; `children`: elements and texts, null is left out. */
export function el(tag, props = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name in made && typeof value !== "string") made[name] = value;
    else made.setAttribute(name === "className" ? "class" : name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

/** Set a text where it differs: an unchanged text costs no layout, and is not read out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Return a text; of a long one its beginning, to open. `name`: what no other list of the view is called. */
export function long(text, name) {
  if (text.length <= LONG) return text;
  return el("details", { "data-name": name }, el("summary", {}, `${text.slice(0, LONG_SHOWN)}… (${count(text.length, "letter")})`),
    el("p", {}, text));
}

/** Return a table that scrolls by itself where it is too wide. `columns`: {title, number, isText}; `rows`: lists of texts and elements, the first one names the row. */
export function table(caption, columns, rows) {
  const cell = (row, value, index) =>
    el(index ? "td" : "th", { scope: index ? null : "row", class: kindOf(columns[index]) }, value ?? "");
  return el("div", { class: "wide" }, el("table", {},
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, columns.map((column) =>
      el("th", { scope: "col", class: kindOf(column) }, column.title)))),
    el("tbody", {}, rows.map((row) => el("tr", {}, row.map((value, index) => cell(row, value, index)))))));
}

function kindOf(column) {
  return column.number ? "number" : column.isText ? "text" : null;
}

/**
 * Make `body` have `children`; null is left out.
 *
 * What stays the same stays in the document: a selected text stays selected, a screen reader stays where it reads, and
 * a list that was opened (`details`) stays open, also in another row. Lists are known by their `data-name`.
 */
export function redraw(body, children) {
  const open = new Set([...body.querySelectorAll("details[open]")].map((one) => one.dataset.name));
  const focused = body.contains(document.activeElement) ? document.activeElement : null;
  const list = focused?.closest("details")?.dataset.name;
  const made = el("div", {}, children.filter(Boolean));
  for (const one of made.querySelectorAll("details")) one.open = open.has(one.dataset.name);
  patch(body, made);
  if (!focused || focused.isConnected) return;
  [...body.querySelectorAll("details")].find((one) => one.dataset.name === list)?.firstChild.focus();
}

/** Return the name by which an element is found among its siblings. */
function nameOf(node) {
  return node.dataset?.name ?? node.ariaLabel ?? null;
}

/** Make the children of an element equal to those of another one, and keep those that match. */
function patch(element, made) {
  const named = new Map([...element.childNodes].map((one) => [nameOf(one), one]).filter(([name]) => name !== null));
  let next = element.firstChild;
  for (const child of [...made.childNodes]) {
    const name = nameOf(child);
    const found = name === null ? next : named.get(name);
    if (!found || found.nodeName !== child.nodeName || nameOf(found) !== name) {
      element.insertBefore(child, next);
      continue;
    }
    if (found === next) next = next.nextSibling;
    else element.insertBefore(found, next);
    if (child.nodeType === Node.TEXT_NODE) {
      if (found.data !== child.data) found.data = child.data;
    } else if (!found.isEqualNode(child)) {
      patchAttributes(found, child);
      patch(found, child);
    }
  }
  while (next) {
    const gone = next;
    next = next.nextSibling;
    gone.remove();
  }
}

function patchAttributes(element, made) {
  for (const name of element.getAttributeNames()) if (!made.hasAttribute(name)) element.removeAttribute(name);
  for (const name of made.getAttributeNames()) {
    const value = made.getAttribute(name);
    if (element.getAttribute(name) === value) continue;
    // The Content-Security-Policy lets no attribute set a style.
    if (name === "style") element.style.cssText = made.style.cssText;
    else element.setAttribute(name, value);
  }
}

/** Return the list of names and values. */
export function facts(pairs) {
  return el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

/** Return a time span in two units, as `kubectl get` does. `from`, `to`: times as texts. */
export function span(from, to) {
  const seconds = Math.max(0, Math.round((Date.parse(to) - Date.parse(from)) / 1000));
  if (Number.isNaN(seconds)) return "";
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => seconds >= size);
  if (first < 0) return "0s";
  const [unit, size] = units[first];
  const rest = seconds % size;
  const next = units[first + 1];
  const more = next && Math.floor(rest / next[1]);
  return `${Math.floor(seconds / size)}${unit}${more ? `${more}${next[0]}` : ""}`;
}

/** Return the time of day of a time, with milliseconds, in UTC; with the date if it is not that of `now`. */
export function clock(time, now = time) {
  if (!time) return "";
  const day = time.slice(0, 10);
  return `${now && day !== now.slice(0, 10) ? `${day} ` : ""}${time.slice(11, 23)}`;
}

export function count(number, one, many = `${one}s`) {
  return `${number.toLocaleString("en")} ${number === 1 ? one : many}`;
}

/** Return an amount of a resource in its usual unit. `amount`: cpu in milli, others in base units. */
export function amount(resource, amount) {
  if (amount === null || amount === undefined) return "none";
  if (resource === "cpu") return String(amount / 1000);
  if (resource !== "memory" && resource !== "ephemeral-storage" && !resource.startsWith("hugepages-")) {
    return amount.toLocaleString("en");
  }
  const units = ["", "Ki", "Mi", "Gi", "Ti", "Pi"];
  let unit = 0;
  let left = amount;
  for (; left >= 1024 && unit < units.length - 1; unit += 1) left /= 1024;
  return `${Number(left.toFixed(1))}${units[unit]}`;
}

/**
 * Make the field for a pod's key, in which NAME alone is in the namespace `default`.
 *
 * `chosen(key)` is called when its form is sent: NAMESPACE/NAME, or "" for none. What is no key is told at the field.
 */
export function podField(input, form, chosen) {
  input.addEventListener("input", () => input.setCustomValidity(""));
  form.noValidate = true;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const text = input.value.trim();
    const key = !text || text.includes("/") ? text : `default/${text}`;
    const isKey = !key || (key.split("/").length === 2 && key.split("/").every(Boolean));
    input.setCustomValidity(isKey ? "" : `${key} names no pod: write NAMESPACE/NAME`);
    if (isKey) chosen(key);
    else input.reportValidity();
  });
}

/**
 * Put what was chosen in a view into its address: for a reload, a bookmark, and the way back from another view.
 *
 * `choices`: values by name; "" is left out. Call it for what the user does alone: after a step back the address is
 * already that of the next view.
 */
export function keepChoices(path, choices) {
  if (location.hash.split("?")[0] !== `#${path}`) return;
  const query = new URLSearchParams(Object.entries(choices).filter(([, value]) => value)).toString();
  const address = `#${path}${query ? `?${query}` : ""}`;
  if (address !== location.hash) history.replaceState(null, "", address);
}

/** Return the link of a pod's view. `key`: NAMESPACE/NAME. */
export function podLink(key) {
  return `#/pods/${key.split("/").map(encodeURIComponent).join("/")}`;
}
