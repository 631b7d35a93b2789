// Watches an answer of /berth/v1: the whole answer first, then its changes (server-sent events).

const RETRY_MS = 2000;

/**
 * Watch `path` below /berth/v1, and return the function that ends it.
 *
 * `told.draw(state)` is called once per frame at most, after something changed. `state`: `value` (the answer without
 * its list), `rows` (a Map by key), `at` (the host's time), `changed` (true if value or rows differ from the last
 * draw). `told.problem(text)` is called with "" when the answer is there again, `told.connected(bool)` when the
 * connection is made or lost.
 */
export function watch(path, query, told) {
  const state = { value: {}, rows: new Map(), at: null, changed: false };
  const url = `../berth/v1/${path}?${new URLSearchParams({ ...query, watch: "true" })}`;
  let source = null;
  let key = null;
  let frame = 0;
  let timer = 0;

  const draw = () => {
    if (frame) return;
    frame = requestAnimationFrame(() => {
      frame = 0;
      told.draw(state);
      state.changed = false;
    });
  };
  const apply = (data) => {
    if (data.value) state.value = data.value;
    for (const gone of data.gone ?? []) state.rows.delete(gone);
    for (const row of data.rows) state.rows.set(row[key], row);
    state.changed = true;
    told.problem("");
    draw();
  };
  const open = () => {
    source = new EventSource(url);
    source.addEventListener("open", () => told.connected(true));
    source.addEventListener("state", (event) => {
      const data = JSON.parse(event.data);
      state.rows.clear();
      key = data.key ?? null;
      apply(data);
    });
    source.addEventListener("change", (event) => apply(JSON.parse(event.data)));
    source.addEventListener("at", (event) => {
      state.at = JSON.parse(event.data);
      draw();
    });
    source.addEventListener("problem", (event) => told.problem(JSON.parse(event.data).message));
    source.addEventListener("error", () => {
      told.connected(false);
      // A browser asks again by itself after a lost connection, and never after an error's status.
      if (source.readyState === EventSource.CLOSED) timer = setTimeout(explain, RETRY_MS / 4);
    });
  };
  const explain = async () => {
    const text = await problemOf(url);
    if (source === null) return;
    told.problem(text);
    timer = setTimeout(open, RETRY_MS);
  };
  const close = () => {
    source?.close();
    source = null;
    clearTimeout(timer);
  };
  // A browser has six connections to a server, and the host works for each stream: a page that nobody sees has none.
  const seen = () => (document.hidden ? close() : source ?? open());
  document.addEventListener("visibilitychange", seen);
  seen();
  return () => {
    document.removeEventListener("visibilitychange", seen);
    close();
    cancelAnimationFrame(frame);
  };
}

async function problemOf(url) {
  try {
    const answer = await fetch(url.replace("watch=true", "watch=false"), { headers: { Accept: "application/json" } });
    if (answer.ok) return "";
    const text = await answer.text();
    try {
      return JSON.parse(text).message ?? text;
    } catch {
      return text;
    }
  } catch {
    return "the scheduler cannot be reached; trying again";
  }
}
