"use strict";

// Everything that is drawn follows from the data and this state; `show` draws it anew.
const data = JSON.parse(document.getElementById("data").textContent);
const nodes = data.nodes;
const state = { chosen: 0, dropped: false };

const ROUND = 138, ROW = 46, WIDTH = 104, HEIGHT = 36, LEFT = 12, TOP = 34, GAP = 12;
const STATES = ["open", "ended", "dropped"];
const rounds = Math.max(...nodes.map((node) => node.round));
const children = nodes.map(() => []);
for (const node of nodes) if (node.parent !== null) children[node.parent].push(node);
const finished = nodes.filter((node) => node.rank !== null).sort((one, other) => one.rank - other.rank);

// Whether an output begins with a hypothesis, or it was still open when the search was over. Children come later.
const leads = nodes.map(() => false);
for (const node of [...nodes].reverse()) {
  leads[node.id] ||= node.state === "ended" || (node.state === "open" && node.round === rounds);
  if (leads[node.id] && node.parent !== null) leads[node.parent] = true;
}

// The log-probability of the best open hypothesis of each round.
const bestOpen = Array.from({ length: rounds + 1 }, (_, round) =>
  Math.max(...nodes.filter((node) => node.round === round && node.state === "open").map((node) => node.log_probability)));

function percent(probability) {
  if (probability >= 0.9995) return "100%";
  if (probability < 0.001) return "<0.1%";
  return `${(100 * probability).toFixed(1)}%`;
}

function signed(number, digits = 3) { return number.toFixed(digits).replace("-", "−"); }

function shorten(label, most) { return label.length > most ? `${label.slice(0, most - 1)}…` : label; }

// A symbol as a label; a space at its beginning is seen where it would tell two symbols apart.
function label(symbol) { return symbol.trim() || symbol.replaceAll(" ", "␣"); }

function spaced(symbol) { return symbol.replace(/^ /, "␣"); }

function path(node) { return node.parent === null ? [] : [...path(nodes[node.parent]), node]; }

function written(node) {
  const symbols = path(node).filter((each) => each.state !== "ended").map((each) => each.symbol);
  return symbols.join("").trimStart();
}

function chance(node) { return Math.exp(node.symbol_log_probability); }

function visible() { return nodes.filter((node) => node.state !== "dropped" || state.dropped); }

// Each round is a column: what is open, then what ended, then what was dropped, each in the order of the search.
function place(shown) {
  const at = {};
  let height = 0;
  for (let round = 0; round <= rounds; round++) {
    let y = TOP;
    for (const state of STATES) {
      const some = shown.filter((node) => node.round === round && node.state === state);
      for (const node of some) { at[node.id] = { x: LEFT + round * ROUND, y }; y += ROW; }
      if (some.length) y += GAP;
    }
    height = Math.max(height, y - GAP);
  }
  return { at, height, width: 2 * LEFT + rounds * ROUND + WIDTH };
}

function kind(node) {
  return [node.state, node.best ? "best" : "", leads[node.id] || node.state === "dropped" ? "" : "lost"].filter(Boolean).join(" ");
}

function edge(node, at) {
  const from = at[node.parent], to = at[node.id];
  const [x, y, end, below] = [from.x + WIDTH, from.y + HEIGHT / 2, to.x, to.y + HEIGHT / 2];
  const bend = (end - x) / 2;
  return draw("path", {
    class: `edge ${kind(node)}`, "data-id": node.id, "data-probability": chance(node), "stroke-width": 1 + 5 * chance(node),
    d: `M ${x} ${y} C ${x + bend} ${y} ${end - bend} ${below} ${end} ${below}`,
  });
}

function box(node, { x, y }) {
  const beside = node.state === "open" ? Math.exp(node.log_probability - bestOpen[node.round]) : 0;
  const [first, second] = node.rank === null
    ? [shorten(label(node.symbol), 13), node.parent === null ? "" : percent(chance(node))]
    : [`${node.rank}.  ${signed(node.score)}`, `${label(node.symbol)} ${percent(chance(node))}`];
  const group = draw("g", {
    class: `node ${kind(node)}`, role: "treeitem", "data-id": node.id, "aria-level": node.round + 1,
    "aria-selected": String(node.id === state.chosen), "aria-label": say(node), tabindex: node.id === state.chosen ? 0 : -1,
  },
    draw("rect", { class: "ring", x: x - 4, y: y - 4, width: WIDTH + 8, height: HEIGHT + 8, rx: 8 }),
    draw("rect", { class: "paper", x, y, width: WIDTH, height: HEIGHT, rx: 6 }),
    draw("rect", { class: "box", x, y, width: WIDTH, height: HEIGHT, rx: 6, "fill-opacity": 0.4 * beside, "data-beside": beside }),
    draw("text", { x: x + 8, y: y + (second ? 16 : 23) }, first),
    draw("text", { class: "small", x: x + 8, y: y + 30 }, second),
    draw("title", {}, say(node)));
  group.addEventListener("click", () => choose(node.id));
  return group;
}

// What a hypothesis is, in a sentence.
function say(node) {
  if (node.parent === null) return `the beginning, ${label(node.symbol)}`;
  const what = { open: "open", ended: `ended, ${node.rank}. with score ${signed(node.score ?? 0)}`, dropped: "dropped" }[node.state];
  return `round ${node.round}: ${label(node.symbol)}, ${percent(chance(node))}, ${what}${node.best ? ", of the best output" : ""}`;
}

function showTree() {
  const shown = visible();
  const { at, height, width } = place(shown);
  const svg = draw("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "tree", "aria-label": "Hypotheses by round" });
  for (let round = 0; round <= rounds; round++)
    svg.append(draw("text", { class: "small", x: LEFT + round * ROUND, y: 18, "aria-hidden": "true" }, round ? `round ${round}` : "begin"));
  svg.append(draw("g", { "aria-hidden": "true" }, ...shown.filter((node) => node.parent !== null).map((node) => edge(node, at))));
  svg.append(...shown.map((node) => box(node, at[node.id])));
  svg.addEventListener("keydown", walk);
  document.getElementById("tree").replaceChildren(svg);
}

// Left to the parent, right to the best child, up and down within the round.
function walk(event) {
  const node = nodes[state.chosen], shown = visible();
  const round = shown.filter((each) => each.round === node.round);
  round.sort((one, other) => STATES.indexOf(one.state) - STATES.indexOf(other.state));
  const next = shown.filter((each) => each.parent === node.id);
  const to = {
    ArrowLeft: () => nodes[node.parent], ArrowRight: () => next.find((each) => each.best) ?? next[0],
    ArrowUp: () => round[round.indexOf(node) - 1], ArrowDown: () => round[round.indexOf(node) + 1],
    Home: () => nodes[0], End: () => finished[0],
  }[event.key];
  if (!to) return;
  event.preventDefault();
  const target = to();
  if (target) choose(target.id, true);
}

function choose(id, focused = false) {
  if (nodes[id].state === "dropped" && !state.dropped) { state.dropped = true; showControls(); showTree(); }
  state.chosen = id;
  for (const each of document.querySelectorAll("#tree .node")) {
    const chosen = Number(each.dataset.id) === id;
    each.setAttribute("aria-selected", String(chosen));
    each.setAttribute("tabindex", chosen ? "0" : "-1");
    if (!chosen) continue;
    each.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (focused) each.focus({ preventScroll: true });
  }
  showChosen();
}

function facts(node) {
  const found = [["written", node.parent === null ? "nothing yet" : `${node.round} symbol${node.round > 1 ? "s" : ""}`]];
  if (node.parent !== null) found.push(["newest symbol", `${percent(chance(node))} (log ${signed(node.symbol_log_probability)})`]);
  found.push(["log-probability", signed(node.log_probability)]);
  if (node.rank !== null) found.push(["score", signed(node.score)], ["place", `${node.rank}. of ${finished.length} that ended`]);
  const why = { open: node.round === rounds ? "still open when the search was over" : leads[node.id] ? "open" : "open; it led to no output", ended: "ended: an output", dropped: "dropped: others were more probable" };
  found.push(["state", node.parent === null ? "the beginning" : why[node.state]]);
  return make("dl", {}, ...found.flatMap(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
}

function bar(probability) {
  return draw("svg", { viewBox: "0 0 100 10", preserveAspectRatio: "none", "aria-hidden": "true" }, draw("rect", { x: 0, y: 0, width: 100 * probability, height: 10, "data-probability": probability }));
}

function row(name, probability, attributes = {}) {
  return make("tr", attributes, make("th", { scope: "row" }, name), make("td", {}, bar(probability)), make("td", {}, percent(probability)));
}

// The most probable next symbols; those that the search went on with lead there.
function distribution(node) {
  if (!node.following.length) {
    const why = { open: "The search was over before this one was read.", ended: "Nothing: it has ended.", dropped: "A dropped hypothesis is read no further." };
    return [make("p", { class: "faint" }, why[node.state])];
  }
  const rows = node.following.map(({ symbol, probability }) => {
    const child = children[node.id].find((each) => each.symbol === symbol);
    if (!child) return row(shorten(spaced(symbol), 20), probability, { "data-symbol": symbol });
    const button = make("button", { type: "button", title: say(child) }, shorten(spaced(symbol), 20));
    button.addEventListener("click", () => choose(child.id, true));
    return row(button, probability, { "data-symbol": symbol });
  });
  const rest = 1 - node.following.reduce((total, each) => total + each.probability, 0);
  if (rest > 0.0005) rows.push(row("all others", rest, { class: "rest" }));
  const columns = make("colgroup", {}, make("col"), make("col", { width: "100%" }), make("col"));
  return [make("table", { id: "following" }, columns, make("tbody", {}, ...rows))];
}

function showChosen() {
  const node = nodes[state.chosen];
  const before = node.parent === null ? "" : written(nodes[node.parent]);
  const newest = node.symbol.trimStart();
  const space = before ? node.symbol.slice(0, node.symbol.length - newest.length) : "";
  document.getElementById("chosen").replaceChildren(
    make("p", { class: "written" }, before + space, make("strong", {}, newest)),
    facts(node), make("h3", {}, "Next symbol"), ...distribution(node));
}

function showControls() {
  const button = document.getElementById("dropped");
  const count = nodes.filter((node) => node.state === "dropped").length;
  button.textContent = `Show what was dropped (${count})`;
  button.setAttribute("aria-pressed", String(state.dropped));
  button.disabled = count === 0;
  document.getElementById("winner").disabled = finished.length === 0;
}

function showFinished() {
  document.getElementById("finished-title").textContent = `What ended (${finished.length}), best first`;
  document.getElementById("finished").replaceChildren(...finished.map((node) => {
    const button = make("button", { type: "button", "data-rank": node.rank }, 
      make("span", { class: "faint" }, `${node.rank}. ${signed(node.score)} `), written(node) || "(nothing)");
    button.addEventListener("click", () => choose(node.id));
    return make("li", {}, button);
  }));
}

document.getElementById("texts").replaceChildren(
  data.source.slice(0, -1).join("").trim(), make("span", { class: "faint" }, " → "), make("strong", {}, data.text));
document.getElementById("dropped").addEventListener("click", () => {
  state.dropped = !state.dropped;
  if (!state.dropped && nodes[state.chosen].state === "dropped") state.chosen = nodes[state.chosen].parent;
  showControls();
  showTree();
  showChosen();
});
document.getElementById("winner").addEventListener("click", () => choose(finished[0].id));
showControls();
showFinished();
showTree();
showChosen();
