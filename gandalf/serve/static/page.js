"use strict";
// The page: predict labels while a text is typed, show the last answer only, and add labels.

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

function resultColumn(title, result, other, baseline) {
  const ranks = other && new Map(other.labels.map((one, rank) => [keyOf(one), rank]));
  const rows = result.labels.map((one, rank) => labelButton(result.text, one, rank, ranks, baseline));
  const list = rows.length ? make("ol", {}, ...rows) : make("p", { class: "soft" }, "no label");
  return make("section", { class: baseline ? "baseline" : "model" }, ...(title ? [make("h2", {}, title)] : []), list);
}

function showResults(found) {
  const [ours, theirs] = [found.results[0], found.baseline ? found.baseline[0] : null];
  const columns = [resultColumn(theirs && "This model", ours, theirs, false)];
  if (theirs) columns.push(resultColumn("Baseline", theirs, ours, true));
  byId("results").replaceChildren(...columns);
  const shared = theirs ? theirs.labels.filter((one) => ours.labels.some((each) => keyOf(each) === keyOf(one))).length : 0;
  showStatus(byId("status"), theirs ? `${shared} of ${ours.labels.length} labels are in both lists` : `${ours.labels.length} labels`);
}

async function query() {
  const text = byId("text").value.trim();
  if (state.control) state.control.abort();
  history.replaceState(null, "", text ? `#${encodeURIComponent(text)}` : location.pathname);
  if (!text) {
    byId("results").replaceChildren();
    showStatus(byId("status"), "");
    return;
  }
  const control = state.control = new AbortController();
  try {
    const body = { text, k: Number(byId("k").value), baseline: Boolean(state.about && state.about.baseline) };
    const found = await fetchJson("/predict", body, { signal: control.signal });
    if (control === state.control) showResults(found);
  } catch (error) {
    if (error.name === "AbortError" || control !== state.control) return;
    showStatus(byId("status"), error.message, true);
    if (error.status === 503) state.timer = setTimeout(query, 1000);
  }
}

function queryLater() {
  clearTimeout(state.timer);
  if (!byId("detail").hidden) hideDetail();
  state.timer = setTimeout(query, WAIT);
}

const lines = (id) => byId(id).value.split("\n").map((line) => line.trim()).filter(Boolean);

async function addLabel(event) {
  event.preventDefault();
  const label = { text: byId("new-text").value, examples: lines("new-examples"),
    neighbours: lines("new-neighbours").map((name) => (/^\d+$/.test(name) ? Number(name) : name)) };
  try {
    const found = await fetchWithToken("/labels", { labels: [label] });
    showStatus(byId("added"), `Added as label ${counted(found.labels[0].label)}, ${counted(found.all_labels)} in all.`);
    for (const id of ["new-text", "new-examples", "new-neighbours"]) byId(id).value = "";
    query();
  } catch (error) {
    showStatus(byId("added"), error.message, true);
  }
}

function moveFocus(step) {
  const buttons = [...document.querySelectorAll(".label")];
  const now = buttons.indexOf(document.activeElement);
  if (now + step < 0) byId("text").focus();
  else if (buttons[now + step]) buttons[now + step].focus();
}

function onKeyDown(event) {
  const typing = /INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName);
  const inList = document.activeElement === byId("text") || document.activeElement.classList.contains("label");
  if (event.key === "/" && !typing) { event.preventDefault(); byId("text").focus(); byId("text").select(); }
  else if (event.key === "Escape" && !byId("detail").hidden) hideDetail();
  else if (event.key === "Escape" && document.activeElement.classList.contains("label")) byId("text").focus();
  else if (event.key === "ArrowDown" && inList) { event.preventDefault(); moveFocus(1); }
  else if (event.key === "ArrowUp" && inList) { event.preventDefault(); moveFocus(-1); }
}

async function start() {
  byId("text").addEventListener("input", queryLater);
  byId("k").addEventListener("change", query);
  byId("ask").addEventListener("submit", (event) => { event.preventDefault(); query(); });
  byId("add").addEventListener("submit", addLabel);
  document.addEventListener("keydown", onKeyDown);
  try {
    state.about = await fetchJson("/about");
    byId("about").textContent = `${state.about.name}, ${counted(state.about.labels)} labels`;
    if (!state.about.adds_labels) {
      byId("adding").replaceChildren(make("summary", {}, "Add a label"),
        make("p", { class: "soft" }, "Adding labels is off. Start the server with --token-file to turn it on."));
    }
  } catch (error) {
    showStatus(byId("status"), error.message, true);
  }
  if (location.hash.length > 1) {
    try { byId("text").value = decodeURIComponent(location.hash.slice(1)); } catch { /* somebody's own hash */ }
    query();
  }
}

start();
