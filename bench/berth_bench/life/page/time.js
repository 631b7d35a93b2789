// The slider of time on the page of a recorded life (`berth bench life --watch`). All views show the moment that it is on.

import { el, setText } from "./dom.js";

const PATH = "../berth/v1/life";

async function ask(query = "") {
  const answer = await fetch(PATH + query, { headers: { Accept: "application/json" } });
  return answer.json();
}

const life = await ask();
const said = el("output", { htmlFor: "time" });
const slider = el("input", { id: "time", type: "range", min: 0, max: life.moments.length - 1, value: life.moment });
const form = el("form", { id: "life" }, el("label", { htmlFor: "time" }, `Seed ${life.seed}`), slider, said);

function tell() {
  const text = life.moments[slider.value];
  const isLast = Number(slider.value) === life.moments.length - 1;
  setText(said, isLast && life.broken ? `${text}: ${life.broken}` : text);
  slider.setAttribute("aria-valuetext", text);
}

form.addEventListener("submit", (event) => event.preventDefault());
slider.addEventListener("input", () => {
  tell();
  ask(`?moment=${slider.value}`);
});
document.querySelector("header").append(form);
tell();
