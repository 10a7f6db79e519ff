"use strict";

// Everything that is drawn follows from the data and this state; `show` draws it anew.
const data = JSON.parse(document.getElementById("data").textContent);
const kinds = Object.keys(data.kinds);
const measures = Object.fromEntries(data.measures.map((measure) => [measure.key, measure]));
const state = { measure: data.colour, chosen: null, sort: { column: "kind", descending: false } };

const DARKEST = 0.5; // so that the number on it can be read
const SIGNIFICANT = 0.05;

function number(value, decimals) {
  const text = value.toFixed(decimals);
  // No minus before a 0.
  return Number(text) === 0 ? (0).toFixed(decimals) : text.replace("-", "−");
}

function figure(value, key) { return value === null || value === undefined ? "" : number(value, measures[key].decimals); }

function title(head) { return `${data.kinds[head.kind]}, layer ${head.layer + 1}, head ${head.head + 1}`; }

// By chance, a few of many heads seem to matter: what is marked is where to look first.
function matters(head) { return state.measure === "bleu_loss" && head.values.p_value !== null && head.values.p_value < SIGNIFICANT; }

function say(head) {
  const said = data.measures.map(({ key, name, unit }) => {
    const text = figure(head.values[key], key);
    return text && `${name} ${text}${unit === "share" ? "" : ` ${unit}`}`.trim();
  });
  return `${title(head)}: ${said.filter(Boolean).join(", ")}`;
}

// How far the colours go: from 0, or from as far below it as above where values have a sign.
function range(key) {
  const values = data.heads.map((head) => head.values[key]).filter((value) => value !== null);
  const signed = values.some((value) => value < 0);
  return { signed, most: Math.max(...values.map(Math.abs)) || 1 };
}

function showMeasures() {
  const group = document.getElementById("measures");
  group.replaceChildren(...data.measures.filter((measure) => measure.colour).map(({ key, name }) => {
    const button = make("button", { type: "button", "aria-pressed": String(key === state.measure), "data-measure": key }, name);
    button.addEventListener("click", () => { state.measure = key; show(); document.querySelector(`[data-measure="${key}"]`).focus(); });
    return button;
  }));
  const { name, unit, meaning, key } = measures[state.measure];
  document.getElementById("meaning").textContent = `${name} (${unit}): ${meaning}.`;
  const { signed, most } = range(key);
  const darkest = (colour) => `color-mix(in srgb, var(${colour}) ${100 * DARKEST}%, var(--paper))`;
  const bar = make("i");
  bar.style.background = `linear-gradient(to right, ${[...(signed ? [darkest("--mark")] : []), "var(--paper)", darkest("--accent")].join(", ")})`;
  const texts = [figure(signed ? -most : 0, key), figure(most, key), key === "bleu_loss" ? `* p < ${SIGNIFICANT}` : ""].map((text) => make("span", {}, text));
  document.getElementById("scale").replaceChildren(texts[0], bar, ...texts.slice(1));
}

function cell(head) {
  const value = head.values[state.measure];
  const text = figure(value, state.measure) + (matters(head) ? "*" : "");
  const id = `${head.kind}/${head.layer}/${head.head}`;
  const attributes = {
    type: "button", class: value < 0 ? "head negative" : "head", "aria-pressed": String(state.chosen === head), title: say(head),
    "aria-label": `${title(head)}: ${text || "none"}`, "data-head": id, "data-value": value,
  };
  const button = make("button", attributes, text || "–");
  button.style.setProperty("--dark", DARKEST * Math.abs(value ?? 0) / range(state.measure).most);
  button.addEventListener("click", () => {
    state.chosen = state.chosen === head ? null : head;
    showMaps();
    showTable();
    document.querySelector(`[data-head="${id}"]`).focus();
    if (state.chosen) document.getElementById("said").textContent = say(head);
  });
  return button;
}

function showMaps() {
  document.getElementById("maps").replaceChildren(...kinds.map((kind) => {
    const heads = data.heads.filter((head) => head.kind === kind);
    const layers = data.layers.filter((layer) => layer.kind === kind);
    const section = make("section", { class: "map", "aria-label": data.kinds[kind] }, make("h2", {}, data.kinds[kind]));
    if (heads.every((head) => (head.values[state.measure] ?? null) === null)) {
      section.append(make("p", { class: "faint" }, "This measure has no meaning here."));
      return section;
    }
    const most = Math.max(...heads.map((head) => head.head)) + 1;
    const columns = Array.from({ length: most }, (_, head) => make("th", { scope: "col" }, String(head + 1)));
    const rows = layers.map(({ layer, values }) => make("tr", {}, make("th", { scope: "row" }, `layer ${layer + 1}`),
      ...heads.filter((head) => head.layer === layer).map((head) => make("td", {}, cell(head))),
      make("td", { class: "mean" }, figure(values[state.measure], state.measure))));
    section.append(make("div", { class: "scroll" }, make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "head"), ...columns, make("th", { scope: "col" }, "mean"))),
      make("tbody", {}, ...rows))));
    return section;
  }));
}

const WIDTH = 380, HEIGHT = 240, LEFT = 48, RIGHT = 14, TOP = 12, BOTTOM = 34;

// A line for each kind of attention, from the first layer to the last.
function showLayers() {
  const series = kinds.map((kind, index) => ({
    kind, index,
    points: data.layers.filter((layer) => layer.kind === kind && state.measure in layer.values).map(({ layer, values }) => ({ layer, value: values[state.measure] })),
  })).filter((each) => each.points.length);
  const values = series.flatMap((each) => each.points.map((point) => point.value));
  const [low, high] = [Math.min(0, ...values), Math.max(0, ...values)];
  const last = Math.max(1, ...series.flatMap((each) => each.points.map((point) => point.layer)));
  const x = (layer) => LEFT + 6 + (layer / last) * (WIDTH - LEFT - RIGHT - 12);
  const y = (value) => HEIGHT - BOTTOM - ((value - low) / (high - low || 1)) * (HEIGHT - TOP - BOTTOM);
  const { name, unit, decimals } = measures[state.measure];
  const said = series.map((each) => `${data.kinds[each.kind]}: ${each.points.map((point) => figure(point.value, state.measure)).join(", ")}`).join("; ");
  const svg = draw("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `Mean ${name} (${unit}) by layer. ${said}` });
  for (const tick of new Set([low, (low + high) / 2, high, 0]))
    svg.append(draw("path", { class: "grid", d: `M${LEFT} ${y(tick)}H${WIDTH - RIGHT}` }),
      draw("text", { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, number(tick, decimals)));
  for (let layer = 0; layer <= last; layer++)
    svg.append(draw("text", { x: x(layer), y: HEIGHT - 16, "text-anchor": "middle" }, String(layer + 1)));
  svg.append(draw("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 2, "text-anchor": "middle" }, "layer"));
  for (const { kind, index, points } of series) {
    const group = draw("g", { class: `k${index % 3}`, "data-kind": kind }, draw("path", { class: "line", d: `M${points.map((point) => `${x(point.layer)} ${y(point.value)}`).join("L")}` }));
    for (const point of points)
      group.append(draw("circle", { cx: x(point.layer), cy: y(point.value), r: 4, "data-value": point.value },
        draw("title", {}, `${data.kinds[kind]}, layer ${point.layer + 1}: ${figure(point.value, state.measure)}`)));
    svg.append(group);
  }
  const keys = series.map(({ kind, index }) => make("div", { class: "key" },
    draw("svg", { viewBox: "0 0 32 10", "aria-hidden": "true", class: `k${index % 3}` }, draw("path", { class: "line", d: "M0 5H32" }), draw("circle", { cx: 16, cy: 5, r: 4 })), data.kinds[kind]));
  document.getElementById("chart").replaceChildren(svg, ...keys);
}

const PLACES = { kind: (head) => kinds.indexOf(head.kind), layer: (head) => head.layer, head: (head) => head.head };

// Heads without the figure come last either way.
function sorted() {
  const { column, descending } = state.sort;
  const value = PLACES[column] ?? ((head) => head.values[column] ?? null);
  const known = data.heads.filter((head) => value(head) !== null);
  known.sort((one, other) => (value(one) - value(other)) * (descending ? -1 : 1));
  return [...known, ...data.heads.filter((head) => value(head) === null)];
}

function showTable() {
  const columns = [...["kind", "layer", "head"].map((key) => ({ key, name: key })), ...data.measures];
  const heads = columns.map(({ key, name, unit, meaning }) => {
    const chosen = state.sort.column === key;
    const arrow = chosen ? (state.sort.descending ? " ▼" : " ▲") : "";
    const button = make("button", { type: "button", "data-column": key, title: meaning ? `${unit && `${unit}: `}${meaning}` : "" }, name, make("span", { "aria-hidden": "true" }, arrow));
    button.addEventListener("click", () => {
      state.sort = { column: key, descending: chosen ? !state.sort.descending : !(key in PLACES) };
      showTable();
      document.querySelector(`[data-column="${key}"]`).focus();
    });
    return make("th", { scope: "col", "aria-sort": chosen ? (state.sort.descending ? "descending" : "ascending") : "none" }, button);
  });
  const rows = sorted().map((head) => make("tr", { class: state.chosen === head ? "chosen" : "", "data-row": `${head.kind}/${head.layer}/${head.head}` },
    make("td", {}, data.kinds[head.kind]), make("td", {}, String(head.layer + 1)), make("td", {}, String(head.head + 1)),
    ...data.measures.map(({ key }) => make("td", {}, figure(head.values[key], key)))));
  const region = document.getElementById("table");
  const place = [region.scrollLeft, region.scrollTop];
  region.replaceChildren(make("table", {}, make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows)));
  [region.scrollLeft, region.scrollTop] = place;
}

function show() {
  showMeasures();
  showMaps();
  showLayers();
  showTable();
}

document.getElementById("title").textContent = data.title;
document.getElementById("notes").replaceChildren(...data.notes.map((note) => make("li", {}, note)));
show();
