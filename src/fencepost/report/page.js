
"use strict";
document.documentElement.classList.add("js");
const sections = [...document.querySelectorAll(".behaviour")];

function behaviour(section) {
  const data = JSON.parse(section.querySelector(".data").textContent);
  const items = [...section.querySelectorAll(".steps > li")];
  const rows = [...section.querySelectorAll(".state tr[data-row]")];
  const last = data.deltas.length;
  const diagram = section.querySelector(".diagram");
  let at = -1;

  function valuesAt(step) {
    const values = data.values.slice();
    for (let i = 0; i < step; i++) for (const [row, text] of Object.entries(data.deltas[i])) values[row] = text;
    return values;
  }

  function showState(step) {
    const values = valuesAt(step);
    const before = step ? valuesAt(step - 1) : values;
    for (const row of rows) {
      const number = Number(row.dataset.row);
      const changed = step > 0 && String(number) in data.deltas[step - 1];
      const cell = row.lastElementChild;
      row.classList.toggle("changed", changed);
      row.classList.toggle("spent", /^processed: [^\n]*$/.test(values[number] ?? ""));
      row.classList.toggle("long", (values[number] ?? "").length > 24 || (changed && (before[number] ?? "").length > 24));
      row.hidden = values[number] === null && !changed;
      cell.textContent = "";
      if (changed) {
        if (before[number] !== null) cell.append(element("del", before[number]));
        cell.append(element("ins", values[number] === null ? "gone" : values[number]));
      } else cell.textContent = values[number] ?? "";
    }
    for (const body of section.querySelectorAll(".state tbody")) body.hidden = !body.querySelector("tr[data-row]:not([hidden])");
    section.querySelector(".of").textContent = step ? `The state after step ${step}` : "The initial state";
  }

  function element(name, text) {
    const made = document.createElement(name);
    made.textContent = text;
    return made;
  }

  function reveal(child, container, asked) {
    if (!child || !child.getClientRects().length) return;
    if (container.scrollHeight <= container.clientHeight) {
      if (asked) child.scrollIntoView({ block: "nearest" });
      return;
    }
    const inner = child.getBoundingClientRect(), outer = container.getBoundingClientRect();
    const sticky = container === diagram ? 44 : 0;
    if (inner.top < outer.top + sticky) container.scrollTop += inner.top - outer.top - sticky - 8;
    else if (inner.bottom > outer.bottom) container.scrollTop += Math.min(inner.bottom - outer.bottom + 8, inner.top - outer.top - sticky - 8);
  }

  function go(step, remember = true) {
    step = Math.max(0, Math.min(last, step));
    if (step === at) return;
    at = step;
    items.forEach((item, number) => {
      item.classList.toggle("on", number === step);
      const button = item.querySelector("button");
      if (number === step) button.setAttribute("aria-current", "step");
      else button.removeAttribute("aria-current");
    });
    for (const part of diagram.querySelectorAll("[data-step]")) {
      part.classList.toggle("on", part.dataset.step === String(step) || part.dataset.to === String(step));
    }
    showState(step);
    section.querySelector(".where").textContent = step ? `step ${step} of ${last}` : "initial state";
    section.querySelector('[data-go="-1"]').disabled = step === 0;
    section.querySelector('[data-go="1"]').disabled = step === last;
    reveal(items[step], items[step].parentElement, remember);
    reveal(diagram.querySelector(`.band[data-step="${step}"]`), diagram);
    if (remember) history.replaceState(null, "", `#${section.id}-step-${step}`);
  }

  function tab(name) {
    for (const button of section.querySelectorAll("[data-tab]")) button.setAttribute("aria-pressed", String(button.dataset.tab === name));
    for (const panel of section.querySelectorAll("[data-panel]")) panel.classList.toggle("shown", panel.dataset.panel === name);
    reveal(items[at], items[0].parentElement);
    reveal(diagram.querySelector(`.band[data-step="${at}"]`), diagram);
  }

  section.addEventListener("click", event => {
    const named = event.target.closest("[data-tab]"), way = event.target.closest("[data-go]"), step = event.target.closest("[data-step]");
    if (named) tab(named.dataset.tab);
    else if (way) go(at + Number(way.dataset.go));
    else if (step) go(Number(step.dataset.step));
  });
  section.querySelector(".only input").addEventListener("change", event => {
    section.querySelector(".state").classList.toggle("few", event.target.checked);
  });
  const asked = /^#(behaviour-\d+)-step-(\d+)$/.exec(location.hash);
  go(asked && asked[1] === section.id ? Number(asked[2]) : Math.min(1, last), false);
  tab("steps");
  return { section, go, step: () => at, last };
}

const behaviours = sections.map(behaviour);
let current = 0;

function choose(number) {
  current = number;
  sections.forEach((section, place) => { section.hidden = place !== number; });
  for (const button of document.querySelectorAll("[data-behaviour]")) {
    button.setAttribute("aria-pressed", String(Number(button.dataset.behaviour) === number));
  }
}

for (const button of document.querySelectorAll("[data-behaviour]")) {
  button.addEventListener("click", () => choose(Number(button.dataset.behaviour)));
}
const wanted = /^#behaviour-(\d+)-/.exec(location.hash);
choose(wanted && behaviours[Number(wanted[1])] ? Number(wanted[1]) : 0);

document.addEventListener("keydown", event => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, textarea, select")) return;
  const shown = behaviours[current];
  const steps = { ArrowDown: 1, ArrowRight: 1, j: 1, ArrowUp: -1, ArrowLeft: -1, k: -1 };
  if (event.key in steps) shown.go(shown.step() + steps[event.key]);
  else if (event.key === "Home") shown.go(0);
  else if (event.key === "End") shown.go(shown.last);
  else return;
  event.preventDefault();
});
