"use strict";

// Without this script the charts, their tables and the pointer's own hints are all there. With it, a chart is read step by
// step: with the pointer, a finger, or the arrow keys.
const KEYS = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };

// All values of a step, by where it lies.
function columnsOf(chart) {
  const columns = new Map();
  for (const series of chart.querySelectorAll(".series"))
    for (const point of series.querySelectorAll("circle")) {
      const step = Number(point.dataset.step);
      if (!columns.has(step)) columns.set(step, { step, x: Number(point.getAttribute("cx")), values: [] });
      columns.get(step).values.push(`${series.dataset.name} ${point.dataset.value}`);
      point.querySelector("title").remove(); // one hint is enough
    }
  return [...columns.values()].sort((one, other) => one.step - other.step);
}

for (const figure of document.querySelectorAll(".chart")) {
  const chart = figure.querySelector("svg");
  const columns = chart ? columnsOf(chart) : [];
  if (!columns.length) continue;
  const readout = figure.querySelector(".readout");
  const cursor = document.createElementNS("http://www.w3.org/2000/svg", "path");
  cursor.setAttribute("class", "cursor");
  chart.append(cursor);
  let at = columns.length - 1;

  function show(index) {
    at = Math.max(0, Math.min(columns.length - 1, index));
    const { step, x, values } = columns[at];
    const text = `step ${step.toLocaleString("en")}: ${values.join("; ")}`;
    readout.textContent = text;
    cursor.setAttribute("d", `M${x} 10V186`);
    chart.setAttribute("aria-valuenow", at);
    chart.setAttribute("aria-valuetext", text);
  }

  function follow(event) {
    const box = chart.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width) * chart.viewBox.baseVal.width;
    const distances = columns.map((column) => Math.abs(column.x - x));
    show(distances.indexOf(Math.min(...distances)));
  }

  const name = figure.querySelector("h3").textContent;
  const attributes = { role: "slider", tabindex: 0, "aria-roledescription": "chart", "aria-valuemin": 0, "aria-valuemax": columns.length - 1 };
  for (const [key, value] of Object.entries(attributes)) chart.setAttribute(key, value);
  show(at);
  chart.addEventListener("pointermove", follow);
  chart.addEventListener("pointerdown", follow);
  chart.addEventListener("keydown", (event) => {
    if (!(event.key in KEYS)) return;
    event.preventDefault();
    show(at + KEYS[event.key]);
  });
}
