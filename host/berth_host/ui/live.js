// Reads answers of /berth/v1: `watch` the whole answer first, then its changes (server-sent events); `ask` once.

import { clock } from "./dom.js";

const RETRY_MS = 2000;
// A stream ends every few minutes, and the browser asks again after a second: that is no loss.
const LOST_MS = 3000;
// The host sends its time after each look. Without it the connection is dead, though nobody has closed it: the host or a
// proxy hangs, or the computer slept.
const SILENT_MS = 30000;
const LOST = "The connection to the scheduler is lost; trying again";

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
  const url = address(path, { ...query, watch: "true" });
  let source = null;
  let key = null;
  let frame = 0;
  let timer = 0;
  let lost = 0;
  let silent = 0;

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
  const heard = () => {
    clearTimeout(silent);
    silent = setTimeout(stall, SILENT_MS);
  };
  const found = () => {
    clearTimeout(lost);
    lost = 0;
    told.connected(true);
  };
  const tell = (text) => told.problem(text && state.at ? `${text}. What you see is of ${clock(state.at)} UTC.` : text);
  const lose = (text) => {
    told.connected(false);
    tell(text);
  };
  const stall = () => {
    source.close();
    lose(lost ? LOST : `The scheduler has sent nothing for ${SILENT_MS / 1000} s; trying again`);
    timer = setTimeout(open, RETRY_MS);
  };
  const open = () => {
    source = new EventSource(url);
    heard();
    source.addEventListener("open", found);
    for (const name of ["open", "state", "change", "at", "problem"]) source.addEventListener(name, heard);
    source.addEventListener("state", (event) => {
      const data = JSON.parse(event.data);
      // Ages are drawn with it. A later time comes by itself.
      state.at = data.at;
      state.rows.clear();
      key = data.key ?? null;
      apply(data);
    });
    source.addEventListener("change", (event) => apply(JSON.parse(event.data)));
    source.addEventListener("at", (event) => {
      state.at = JSON.parse(event.data);
      // After a problem the answer may be the one from before: then no change comes.
      told.problem("");
      draw();
    });
    source.addEventListener("problem", (event) => tell(JSON.parse(event.data).message));
    source.addEventListener("error", (event) => {
      // A browser asks again by itself after a lost connection, and never after an error's status.
      if (event.target.readyState === EventSource.CLOSED) {
        clearTimeout(lost);
        clearTimeout(silent);
        timer = setTimeout(explain, RETRY_MS / 4, event.target);
      } else {
        lost ||= setTimeout(lose, LOST_MS, LOST);
      }
    });
  };
  const explain = async (failed) => {
    let text = "";
    try {
      await answerOf(url.replace("watch=true", "watch=false"), AbortSignal.timeout(SILENT_MS));
    } catch (error) {
      text = error.message;
    }
    // The page may have been hidden and shown again meanwhile, with a stream of its own.
    if (source !== failed) return;
    lose(text);
    timer = setTimeout(open, RETRY_MS);
  };
  const close = () => {
    source?.close();
    source = null;
    clearTimeout(timer);
    clearTimeout(lost);
    clearTimeout(silent);
    lost = 0;
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

/** Return an answer of /berth/v1. Throws an Error with the host's own text. */
export function ask(path, query = {}) {
  return answerOf(address(path, query));
}

function address(path, query) {
  return `../berth/v1/${path}?${new URLSearchParams(query)}`;
}

async function answerOf(url, signal) {
  let answer;
  let text;
  try {
    answer = await fetch(url, { headers: { Accept: "application/json" }, signal });
    text = await answer.text();
  } catch {
    throw new Error("The scheduler cannot be reached; trying again");
  }
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {
    // A proxy on the way answers in its own words.
  }
  if (!answer.ok) throw new Error(value?.message ?? (text.trim() || `The answer has the status ${answer.status}`));
  return value;
}
