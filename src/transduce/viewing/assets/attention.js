"use strict";

// Everything that is drawn follows from the data and this state; `show` draws it anew.
const data = JSON.parse(document.getElementById("data").textContent);
const NAMES = { encoder: "encoder self-attention", cross: "encoder-decoder attention", decoder: "decoder self-attention" };
const kinds = Object.keys(NAMES).filter((kind) => data.sentences.every((each) => kind in each.weights));
const state = { kind: kinds.includes("cross") ? "cross" : kinds[0], level: "words", view: "lines", layer: 0, head: 0, muted: false };

function unpack(packed) {
  const bytes = Uint8Array.from(atob(packed.float32), (letter) => letter.charCodeAt(0));
  return { shape: packed.shape, numbers: new Float32Array(bytes.buffer) };
}

for (const sentence of data.sentences)
  for (const kind of Object.keys(sentence.weights)) sentence.weights[kind] = unpack(sentence.weights[kind]);

// The weights of one head by tokens: a list of rows, one for each query.
function tokenRows(sentence, kind, layer, head) {
  const { shape, numbers } = sentence.weights[kind];
  const [, heads, queries, keys] = shape;
  const start = (layer * heads + head) * queries * keys;
  return Array.from({ length: queries }, (_, row) => numbers.subarray(start + row * keys, start + (row + 1) * keys));
}

function side(sentence, kind, which) {
  const source = { labels: sentence.source, words: sentence.source_words };
  const target = { labels: sentence.target, words: sentence.target_words };
  // What has been read is the target, one place later.
  const read = { labels: sentence.read, words: [0, ...sentence.target_words.slice(0, -1).map((word) => word + 1)] };
  if (which === "queries") return kind === "encoder" ? source : target;
  return kind === "decoder" ? read : source;
}

// Tokens of a word together: the mean of its queries, the sum of its keys.
function gather(labels, words) {
  const groups = [];
  words.forEach((word, token) => {
    if (!groups.length || groups[groups.length - 1].word !== word) groups.push({ word, tokens: [] });
    groups[groups.length - 1].tokens.push(token);
  });
  return groups.map((group) => ({ tokens: group.tokens, label: group.tokens.map((token) => labels[token]).join("").trim() }));
}

function view(sentence, kind, layer, head) {
  const rows = tokenRows(sentence, kind, layer, head);
  const [queries, keys] = ["queries", "keys"].map((which) => side(sentence, kind, which));
  if (state.level === "tokens")
    return { queries: queries.labels.map((each) => each.trim()), keys: keys.labels.map((each) => each.trim()), rows: rows.map((row) => [...row]) };
  const [asking, asked] = [queries, keys].map((each) => gather(each.labels, each.words));
  const sum = (row, tokens) => tokens.reduce((total, token) => total + row[token], 0);
  return {
    queries: asking.map((each) => each.label),
    keys: asked.map((each) => each.label),
    rows: asking.map((query) =>
      asked.map((key) => query.tokens.reduce((total, token) => total + sum(rows[token], key.tokens), 0) / query.tokens.length)),
  };
}

function choose(id, options, key) {
  const group = document.getElementById(id);
  const focused = group.contains(document.activeElement);
  group.replaceChildren(...Object.entries(options).map(([value, label]) => {
    const button = make("button", { type: "button", "aria-pressed": String(state[key] === value), "data-value": value }, label);
    button.addEventListener("click", () => { state[key] = value; show(); });
    return button;
  }));
  if (focused) group.querySelector('[aria-pressed="true"]').focus();
}

function size(kind) {
  const shapes = data.sentences.map((each) => each.weights[kind].shape);
  return { layers: Math.min(...shapes.map((shape) => shape[0])), heads: Math.min(...shapes.map((shape) => shape[1])) };
}

// The heads that a changed word moves most: those above the mean by one standard deviation.
function movedMost(kind) {
  const moved = data.moved[kind];
  if (!moved) return () => false;
  const all = moved.flat();
  const mean = all.reduce((total, each) => total + each, 0) / all.length;
  const spread = Math.sqrt(all.reduce((total, each) => total + (each - mean) ** 2, 0) / all.length);
  return (layer, head) => moved[layer][head] > mean + spread;
}

function thumbnail(sentence, kind, layer, head) {
  const rows = tokenRows(sentence, kind, layer, head);
  const canvas = make("canvas", { width: rows[0].length, height: rows.length, "aria-hidden": "true" });
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue("--accent");
  rows.forEach((row, y) => row.forEach((weight, x) => { context.globalAlpha = weight; context.fillRect(x, y, 1, 1); }));
  return canvas;
}

function showHeads() {
  const { layers, heads } = size(state.kind);
  const moved = movedMost(state.kind);
  const focused = document.activeElement?.dataset?.head;
  const rows = Array.from({ length: layers }, (_, layer) =>
    make("div", { class: "layer" }, make("span", {}, String(layer + 1)), ...Array.from({ length: heads }, (_, head) => {
      const chosen = layer === state.layer && head === state.head;
      const far = moved(layer, head);
      const label = `layer ${layer + 1}, head ${head + 1}${far ? ", moved by the changed word" : ""}`;
      const attributes = { type: "button", class: far ? "head moved" : "head", "aria-pressed": String(chosen), "aria-label": label, title: label, "data-head": `${layer}/${head}` };
      const button = make("button", attributes, thumbnail(data.sentences[0], state.kind, layer, head));
      button.addEventListener("click", () => { Object.assign(state, { layer, head }); show(); });
      return button;
    })));
  document.getElementById("heads").replaceChildren(...rows);
  if (focused) document.querySelector(`[data-head="${focused}"]`)?.focus();
}

const ROW = 26, TEXT = 150, GAP = 170;

// Words on both sides, and lines from the one that is pointed at.
function lines(seen, kept) {
  const height = (Math.max(seen.queries.length, seen.keys.length) + 1) * ROW;
  const svg = draw("svg", { viewBox: `0 0 ${2 * TEXT + GAP} ${height}`, width: "100%", role: "group", "aria-label": "Lines between words" });
  const edges = draw("g", { "aria-hidden": "true" });
  svg.append(
    draw("text", { class: "column", x: TEXT - 8, y: 14, "text-anchor": "end" }, "attends"),
    draw("text", { class: "column", x: TEXT + GAP + 8, y: 14 }, "to"), edges);
  const y = (index) => (index + 1.5) * ROW;
  const connect = (chosen) => {
    edges.replaceChildren();
    seen.rows.forEach((row, query) => row.forEach((weight, key) => {
      const alone = chosen === null || (chosen.side === "query" ? chosen.index === query : chosen.index === key);
      if (!alone || weight < 0.01) return;
      edges.append(draw("path", {
        class: "edge", "stroke-opacity": weight, "data-query": query, "data-key": key, "data-weight": weight,
        d: `M ${TEXT} ${y(query)} C ${TEXT + GAP / 2} ${y(query)} ${TEXT + GAP / 2} ${y(key)} ${TEXT + GAP} ${y(key)}`,
      }));
    }));
  };
  let held = kept.chosen;
  const token = (label, index, which) => {
    const left = which === "query";
    const group = draw("g", { class: "token", tabindex: "0", role: "button", "data-side": which, "data-index": index, "aria-label": sayToken(seen, index, which) },
      draw("rect", { x: left ? 0 : TEXT + GAP, y: y(index) - ROW / 2, width: TEXT, height: ROW }),
      draw("text", { x: left ? TEXT - 8 : TEXT + GAP + 8, y: y(index) + 5, "text-anchor": left ? "end" : "start" }, shorten(label)));
    const point = () => connect({ side: which, index });
    group.addEventListener("pointerenter", point);
    group.addEventListener("focus", point);
    group.addEventListener("pointerleave", () => connect(held));
    group.addEventListener("blur", () => connect(held));
    const keep = () => {
      held = held && held.side === which && held.index === index ? null : { side: which, index };
      kept.chosen = held;
      svg.querySelectorAll(".kept").forEach((each) => each.classList.remove("kept"));
      if (held) group.classList.add("kept");
      connect(held);
      if (held) document.getElementById("said").textContent = sayToken(seen, index, which);
    };
    group.addEventListener("click", keep);
    group.addEventListener("keydown", (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); keep(); } });
    if (held && held.side === which && held.index === index) group.classList.add("kept");
    return group;
  };
  svg.append(...seen.queries.map((label, index) => token(label, index, "query")), ...seen.keys.map((label, index) => token(label, index, "key")));
  connect(held);
  return svg;
}

function sayToken(seen, index, which) {
  const [label, others] = which === "query" ? [seen.queries[index], seen.keys] : [seen.keys[index], seen.queries];
  const weights = which === "query" ? seen.rows[index] : seen.rows.map((row) => row[index]);
  const order = weights.map((weight, place) => ({ weight, place })).sort((a, b) => b.weight - a.weight).slice(0, 3);
  const said = order.map(({ weight, place }) => `${others[place]} ${weight.toFixed(2)}`).join(", ");
  return which === "query" ? `${label} attends to ${said}` : `${label} is attended to by ${said}`;
}

function shorten(label) { return label.length > 18 ? `${label.slice(0, 17)}…` : label; }

// Every weight as a square.
function heatMap(seen) {
  const cell = 22, left = 120, top = 110;
  const svg = draw("svg", { viewBox: `0 0 ${left + seen.keys.length * cell + 60} ${top + seen.queries.length * cell + 4}`,
    width: left + seen.keys.length * cell + 60, role: "img", "aria-label": "Weights as a table: a row for each word that attends, a column for each it attends to" });
  seen.keys.forEach((label, key) => svg.append(draw("text", { transform: `translate(${left + (key + 0.7) * cell} ${top - 6}) rotate(-50)` }, shorten(label))));
  seen.rows.forEach((row, query) => {
    svg.append(draw("text", { x: left - 6, y: top + (query + 0.7) * cell, "text-anchor": "end" }, shorten(seen.queries[query])));
    row.forEach((weight, key) => svg.append(draw("rect", { class: "cell", x: left + key * cell, y: top + query * cell, width: cell, height: cell, "fill-opacity": weight, "data-query": query, "data-key": key, "data-weight": weight },
      draw("title", {}, `${seen.queries[query]} to ${seen.keys[key]}: ${weight.toFixed(4)}`))));
  });
  return svg;
}

// What a head is for: the text without it, and the words that are others.
function compared(text, other) {
  const known = new Set(text.split(/\s+/));
  return other.split(/(\s+)/).map((part) => part.trim() && !known.has(part) ? make("span", { class: "changed" }, part) : part);
}

// A page around this one may translate without a head; one of another origin may not even be asked.
function around() {
  try { return window.parent.translateWithout ?? null; } catch { return null; }
}

// What a head is for, as far as that is known, or the button that finds out.
function withoutHead(sentence) {
  const head = `${state.kind}/${state.layer}/${state.head}`;
  const without = sentence.muted[head];
  if (without === sentence.text) return make("p", { class: "without" }, "Without this head: the same.");
  if (without !== undefined) return make("p", { class: "without" }, "Without this head: ", ...compared(sentence.text, without));
  const translateWithout = around();
  // Only heads of models that attend to themselves, too, can be muted.
  if (!translateWithout || !("encoder" in sentence.weights)) return "";
  const button = make("button", { type: "button", class: "mute" }, "Translate without this head");
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      sentence.muted[head] = await translateWithout(head);
      showSentences();
    } catch (error) {
      button.replaceWith(make("p", { class: "without" }, error.message));
    }
  });
  return button;
}

const kept = data.sentences.map(() => ({ chosen: null }));

function showSentences() {
  document.getElementById("sentences").replaceChildren(...data.sentences.map((sentence, index) => {
    const seen = view(sentence, state.kind, state.layer, state.head);
    const article = make("article", { class: "sentence" }, make("p", {}, gather(sentence.source.slice(0, -1), sentence.source_words.slice(0, -1)).map((each) => each.label).join(" ")));
    if (sentence.text) article.append(make("p", { class: "faint" }, sentence.text));
    article.append(withoutHead(sentence));
    article.append(make("div", { class: "drawing" }, state.view === "lines" ? lines(seen, kept[index]) : heatMap(seen)));
    return article;
  }));
}

function show() {
  const { layers, heads } = size(state.kind);
  state.layer = Math.min(state.layer, layers - 1);
  state.head = Math.min(state.head, heads - 1);
  choose("kinds", Object.fromEntries(kinds.map((kind) => [kind, NAMES[kind]])), "kind");
  choose("levels", { words: "words", tokens: "sub-words" }, "level");
  choose("views", { lines: "lines", map: "heat map" }, "view");
  showHeads();
  showSentences();
}

for (const key of ["kind", "level"]) {
  // A word that is kept means nothing in another kind or level.
  document.getElementById(`${key}s`).addEventListener("click", () => kept.forEach((each) => { each.chosen = null; }), true);
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", show);
show();
