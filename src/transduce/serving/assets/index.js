"use strict";

const $ = (id) => document.getElementById(id);
// How long to wait for the next letter, in milliseconds.
const PAUSE = 250;
const ALTERNATIVES = 3;
const state = { languages: [], limit: null, timer: null, running: null, translated: null, frames: 0 };

class Refused extends Error {
  constructor(message, status, seconds) {
    super(message);
    this.status = status;
    this.seconds = seconds;
  }
}

async function ask(path, body, signal) {
  const headers = { "content-type": "application/json" };
  if ($("key").value) headers.authorization = `Bearer ${$("key").value}`;
  const options = body === undefined ? { signal } : { method: "POST", headers, body: JSON.stringify(body), signal };
  const answer = await fetch(path, options);
  const data = await answer.json();
  if (!answer.ok) throw new Refused(data.error ?? `status ${answer.status}`, answer.status, Number(answer.headers.get("retry-after")) || null);
  return data;
}

function say(message, wrong = false) {
  $("message").textContent = message;
  $("message").classList.toggle("wrong", wrong);
}

function option(code, name) {
  const made = document.createElement("option");
  made.value = code;
  made.textContent = name;
  return made;
}

// Whose language an element is in, as HTML spells it; a model that was given no languages has none.
function speak(element, code) {
  if (["source", "target", "auto"].includes(code)) element.removeAttribute("lang");
  else element.lang = code.replaceAll("_", "-");
}

function nameOf(code) {
  return state.languages.find((each) => each.code === code)?.name ?? code;
}

// What can be reached from the chosen language, or from any where it is to be told.
function showTargets() {
  const chosen = $("target").value;
  const from = state.languages.filter((each) => $("source").value === "auto" || each.code === $("source").value);
  const codes = [...new Set(from.flatMap((each) => each.targets))];
  $("target").replaceChildren(...codes.map((code) => option(code, state.names[code] ?? nameOf(code))));
  if (codes.includes(chosen)) $("target").value = chosen;
  const back = state.languages.find((each) => each.code === $("target").value);
  $("swap").disabled = $("source").value === "auto" || !back?.targets.includes($("source").value);
}

function swap() {
  const [source, target] = [$("source").value, $("target").value];
  $("source").value = target;
  showTargets();
  $("target").value = source;
  showTargets();
  // What is typed and not translated yet stays.
  if (state.translated?.text === $("text").value) $("text").value = state.translated.output;
  translate();
}

function soon() {
  clearTimeout(state.timer);
  state.timer = setTimeout(translate, PAUSE);
}

function forget() {
  state.translated = null;
  $("output").textContent = "";
  $("detected").textContent = "";
  $("copy").disabled = true;
  $("others").hidden = true;
  $("inside").hidden = true;
  look(null);
}

async function translate() {
  clearTimeout(state.timer);
  state.running?.abort();
  const text = $("text").value;
  $("count").textContent = `${text.length.toLocaleString("en")}${state.limit ? ` of ${state.limit.toLocaleString("en")}` : ""} characters`;
  say("");
  if (!text.trim()) { forget(); return; }
  const running = new AbortController();
  state.running = running;
  $("output").classList.add("waiting");
  try {
    const [source, target] = [$("source").value, $("target").value];
    const answer = await ask("/translate", { q: text, source, target, alternatives: ALTERNATIVES }, running.signal);
    show(text, answer.detectedLanguage?.language ?? source, target, answer);
  } catch (error) {
    if (error.name === "AbortError") return;
    const again = error.seconds && [429, 503].includes(error.status);
    say(again ? `${error.message} (tried again in ${error.seconds} s)` : error.message, true);
    if (again) state.timer = setTimeout(translate, 1000 * error.seconds);
    if (!again) forget();
  } finally {
    if (state.running === running) $("output").classList.remove("waiting");
  }
}

function show(text, source, target, answer) {
  state.translated = { text, source, target, output: answer.translatedText };
  $("output").textContent = answer.translatedText;
  speak($("output"), target);
  speak($("text"), source);
  $("detected").textContent = answer.detectedLanguage ? `– ${nameOf(source)}, ${answer.detectedLanguage.confidence}% sure` : "";
  $("copy").disabled = false;
  const others = (answer.alternatives ?? []).filter((each) => each !== answer.translatedText);
  $("others").hidden = others.length === 0;
  $("alternatives").replaceChildren(...others.map((each) => {
    const item = document.createElement("li");
    item.textContent = each;
    item.dir = "auto";
    speak(item, target);
    return item;
  }));
  $("inside").hidden = false;
  // What is looked at is one sentence: several are translated one by one, and together would come out otherwise.
  state.translated.sentence = firstSentence(text.trim(), source);
  $("inside-text").textContent = state.translated.sentence === text.trim() ? "" : `Of the first sentence: ${state.translated.sentence}`;
  look(null);
}

function firstSentence(text, code) {
  const line = text.split("\n")[0].trim();
  if (!Intl.Segmenter) return line;
  // A model that was given no languages has none: English, as the server splits it.
  const language = code === "source" ? "en" : code.split("_")[0];
  return [...new Intl.Segmenter(language, { granularity: "sentence" }).segment(line)][0].segment.trim();
}

// A page of this server in a frame, around data that was asked for.
async function look(which) {
  press(which);
  const number = ++state.frames;
  $("look").replaceChildren();
  if (which === null) return;
  const { sentence, source, target } = state.translated;
  try {
    const [data, body] = await Promise.all([
      ask(`/v1/${which}`, { text: sentence, source, target }),
      fetch(`/assets/${which}.html`).then((answer) => answer.text()),
    ]);
    if (number !== state.frames) return;
    const frame = document.createElement("iframe");
    frame.title = which === "attention" ? "What the model attends to" : "What the search tried";
    const json = JSON.stringify(data).replaceAll("<", "\\u003c");
    frame.srcdoc = `<!doctype html><html lang="en"><meta charset="utf-8"><title>${frame.title}</title>` +
      `<link rel="stylesheet" href="/assets/page.css">` +
      `<link rel="stylesheet" href="/assets/${which}.css"><body>${body}` +
      `<script type="application/json" id="data">${json}</script><script src="/assets/page.js"></script><script src="/assets/${which}.js"></script></body></html>`;
    frame.addEventListener("load", () => fit(frame));
    $("look").replaceChildren(frame);
  } catch (error) {
    if (number !== state.frames) return;
    press(null);
    say(error.message, true);
  }
}

function press(which) {
  for (const button of document.querySelectorAll("[data-look]")) button.setAttribute("aria-pressed", String(button.dataset.look === which));
}

// As high as what is in it, whatever is chosen there.
function fit(frame) {
  const body = frame.contentDocument.body;
  const measure = () => { frame.style.height = `${Math.ceil(body.getBoundingClientRect().height) + 40}px`; };
  new ResizeObserver(measure).observe(body);
  measure();
}

// The page of attention in its frame calls this: the sentence once more without a head, KIND/LAYER/HEAD.
window.translateWithout = async (head) => {
  const { sentence, source, target } = state.translated;
  const data = await ask("/v1/attention", { text: sentence, source, target, mute: [head] });
  return data.sentences[0].text;
};

async function begin() {
  try {
    const [languages, settings, models] = await Promise.all(["/languages", "/frontend/settings", "/v1/models"].map((path) => ask(path)));
    state.languages = languages;
    state.limit = settings.charLimit;
    state.names = Object.fromEntries(models.map((each) => [each.target.code, each.target.name]));
    $("key-row").hidden = !settings.keyRequired;
    const auto = languages.length > 1 ? [option("auto", "Any language")] : [];
    $("source").replaceChildren(...auto, ...languages.map((each) => option(each.code, each.name)));
    showTargets();
    translate();
  } catch (error) {
    say(error.message, true);
  }
}

$("text").addEventListener("input", soon);
$("key").addEventListener("change", translate);
$("key-row").addEventListener("submit", (event) => { event.preventDefault(); translate(); });
$("source").addEventListener("change", () => { showTargets(); translate(); });
$("target").addEventListener("change", () => { showTargets(); translate(); });
$("swap").addEventListener("click", swap);
$("copy").addEventListener("click", async () => {
  try {
    await navigator.clipboard.writeText($("output").textContent);
    say("Copied.");
  } catch {  // browsers have no clipboard for pages from another machine without TLS
    getSelection().selectAllChildren($("output"));
    say("Selected: the browser lets this page copy nothing.");
  }
});
for (const button of document.querySelectorAll("[data-look]"))
  button.addEventListener("click", () => look(button.getAttribute("aria-pressed") === "true" ? null : button.dataset.look));
begin();
