"use strict";
// The page: what is typed is asked at once, and only the last answer counts.

const WAIT = 60; // milliseconds without a key before a request goes out
const state = { about: null, control: null, timer: null };

const keyOf = (one) => one.id ?? one.text;

function labelButton(text, one, rank, others, baseline) {
  const before = others && others.get(keyOf(one));
  const moved = others === null || before === rank ? "" : before === undefined ? "only here" : before > rank ? `↑${before - rank}` : `↓${rank - before}`;
  const fill = make("i");
  fill.style.setProperty("--share", `${(100 * one.score).toFixed(2)}%`);
  const name = make("span", { class: "name", title: one.text }, one.text);
  const button = make("button", {
    type: "button", class: `label${moved === "only here" ? " only" : ""}`, "aria-expanded": "false", "data-label": one.label,
    onclick: () => {
      for (const other of document.querySelectorAll(".label")) other.setAttribute("aria-expanded", String(other === button));
      showDetail(text, one.label, baseline, button);
    },
  }, name, make("span", { class: "moved" }, moved), make("span", { class: "score" }, one.score.toFixed(3)), make("span", { class: "bar" }, fill));
  return make("li", {}, button);
}

function column(title, result, other, baseline) {
  const ranks = other && new Map(other.labels.map((one, rank) => [keyOf(one), rank]));
  const rows = result.labels.map((one, rank) => labelButton(result.text, one, rank, ranks, baseline));
  const list = rows.length ? make("ol", {}, ...rows) : make("p", { class: "soft" }, "no label");
  return make("section", { class: baseline ? "baseline" : "model" }, ...(title ? [make("h2", {}, title)] : []), list);
}

function show(found) {
  const [ours, theirs] = [found.results[0], found.baseline ? found.baseline[0] : null];
  const columns = [column(theirs && "This model", ours, theirs, false)];
  if (theirs) columns.push(column("Baseline", theirs, ours, true));
  at("results").replaceChildren(...columns);
  const shared = theirs ? theirs.labels.filter((one) => ours.labels.some((each) => keyOf(each) === keyOf(one))).length : 0;
  tell(at("status"), theirs ? `${shared} of ${ours.labels.length} labels are in both lists` : `${ours.labels.length} labels`);
}

async function query() {
  const text = at("text").value.trim();
  if (state.control) state.control.abort();
  history.replaceState(null, "", text ? `#${encodeURIComponent(text)}` : location.pathname);
  if (!text) {
    at("results").replaceChildren();
    tell(at("status"), "");
    return;
  }
  const control = state.control = new AbortController();
  try {
    const body = { text, k: Number(at("k").value), baseline: Boolean(state.about && state.about.baseline) };
    const found = await ask("/predict", body, { signal: control.signal });
    if (control === state.control) show(found);
  } catch (error) {
    if (error.name === "AbortError" || control !== state.control) return;
    tell(at("status"), error.message, true);
    if (error.status === 503) state.timer = setTimeout(query, 1000);
  }
}

function soon() {
  clearTimeout(state.timer);
  if (!at("detail").hidden) hideDetail();
  state.timer = setTimeout(query, WAIT);
}

const lines = (id) => at(id).value.split("\n").map((line) => line.trim()).filter(Boolean);

async function addLabel(event) {
  event.preventDefault();
  const label = { text: at("new-text").value, examples: lines("new-examples"),
    neighbours: lines("new-neighbours").map((name) => (/^\d+$/.test(name) ? Number(name) : name)) };
  try {
    const found = await ask("/labels", { labels: [label] }, { headers: { authorization: `Bearer ${at("token").value}` } });
    tell(at("added"), `Added as label ${found.labels[0].label.toLocaleString("en")}, ${found.all_labels.toLocaleString("en")} in all.`);
    for (const id of ["new-text", "new-examples", "new-neighbours"]) at(id).value = "";
    query();
  } catch (error) {
    tell(at("added"), error.message, true);
  }
}

function move(step) {
  const buttons = [...document.querySelectorAll(".label")];
  const now = buttons.indexOf(document.activeElement);
  if (now + step < 0) at("text").focus();
  else if (buttons[now + step]) buttons[now + step].focus();
}

function onKey(event) {
  const typing = /INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName);
  const inList = document.activeElement === at("text") || document.activeElement.classList.contains("label");
  if (event.key === "/" && !typing) { event.preventDefault(); at("text").focus(); at("text").select(); }
  else if (event.key === "Escape" && !at("detail").hidden) hideDetail();
  else if (event.key === "Escape" && document.activeElement.classList.contains("label")) at("text").focus();
  else if (event.key === "ArrowDown" && inList) { event.preventDefault(); move(1); }
  else if (event.key === "ArrowUp" && inList) { event.preventDefault(); move(-1); }
}

async function start() {
  at("text").addEventListener("input", soon);
  at("k").addEventListener("change", query);
  at("ask").addEventListener("submit", (event) => { event.preventDefault(); query(); });
  at("add").addEventListener("submit", addLabel);
  document.addEventListener("keydown", onKey);
  try {
    state.about = await ask("/about");
    at("about").textContent = `${state.about.name}, ${state.about.labels.toLocaleString("en")} labels`;
    if (!state.about.adds_labels) {
      at("adding").replaceChildren(make("summary", {}, "Add a label"),
        make("p", { class: "soft" }, "Adding labels is off. Start the server with --token-file to turn it on."));
    }
  } catch (error) {
    tell(at("status"), error.message, true);
  }
  if (location.hash.length > 1) {
    try { at("text").value = decodeURIComponent(location.hash.slice(1)); } catch { /* somebody's own hash */ }
    query();
  }
}

start();
