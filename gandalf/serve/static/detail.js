"use strict";
// Show why a text gets a label, and the neighbours of the label.

function wordEffects(found) {
  const line = make("p", { class: "words" });
  const largest = Math.max(...found.words.map((word) => Math.abs(word.effect)), 1e-9);
  let end = 0;
  for (const word of found.words) {
    line.append(found.text.slice(end, word.start));
    const change = `without it ${word.without.toFixed(3)}`;
    const mark = make("mark", { title: change, "aria-label": `${word.word}, ${change}` }, word.word);
    mark.style.setProperty("--tint", word.effect < 0 ? "var(--against)" : "var(--for)");
    mark.style.setProperty("--strength", (0.65 * Math.abs(word.effect)) / largest);
    line.append(mark);
    end = word.end;
  }
  line.append(found.text.slice(end));
  return line;
}

function scoredList(title, entries) {
  const rows = entries.map(([value, text]) =>
    make("li", {}, make("span", { class: "score" }, value.toFixed(2)), make("span", {}, text)));
  return [make("h3", {}, title), rows.length ? make("ol", { class: "list" }, ...rows) : make("p", { class: "soft" }, "none")];
}

function trainingLists(found) {
  if (found.nearest === null) {
    return [...scoredList("Labels with weights alike", found.alike.map((one) => [one.similarity, one.text])),
      make("p", { class: "soft" }, "The server was started without --data, so it cannot show which training points taught this.")];
  }
  return [
    ...scoredList("Nearest training points that have it", found.with_label.map((one) => [one.similarity, one.text])),
    ...scoredList("Nearest training points of all (✓ has it)",
      found.nearest.map((one) => [one.similarity, one.text + (one.target ? " ✓" : "")])),
    ...scoredList("Labels whose texts were taught it, with the target", found.teachers.map((one) => [one.target, one.text])),
  ];
}

function partShares(found) {
  const total = found.shares.reduce((sum, one) => sum + one.weight * one.probability, 0) || 1;
  const parts = found.shares.map((one) => `${one.part} ${Math.round((100 * one.weight * one.probability) / total)} %`);
  return parts.length ? [make("p", { class: "soft" }, `parts: ${parts.join(", ")}`)] : [];
}

function rememberedPoints(found) {
  if (found.remembered === null) return [];
  return scoredList("What remembered points add to the probability",
    found.remembered.map((one) => [one.share, `${one.text} (${one.kind})`]));
}

async function addExample(text, label, value) {
  const status = byId("judged");
  if (!byId("token").value) {
    showStatus(status, "Type the token under “Add a label” first.", true);
    return;
  }
  try {
    const example = { text, labels: [label], values: [value] };
    const found = await fetchWithToken("/examples", { examples: [example] });
    await query();
    showStatus(status, `Kept as an example, ${counted(found.all_examples)} in all; the list has changed.`);
  } catch (error) {
    showStatus(status, error.message, true);
  }
}

function judgeButtons(text, label, baseline) {
  if (baseline || !state.about || !state.about.adds_labels) return [];
  const button = (name, value) => make("button", { type: "button", class: "judge", onclick: () => addExample(text, label, value) }, name);
  return [make("p", {}, button("This is right", 1), " ", button("This is wrong", -1)),
    make("p", { id: "judged", role: "status", "aria-live": "polite" })];
}

const detail = { asked: 0, back: null };

async function showDetail(text, label, baseline, back) {
  const place = byId("detail"), number = ++detail.asked;
  if (back) detail.back = back;
  try {
    const where = `/labels/${label}/neighbours${baseline ? "?baseline=true" : ""}`;
    const [found, near] = await Promise.all([fetchJson("/explain", { text, label, baseline }), fetchJson(where)]);
    if (number !== detail.asked) return;
    const again = (other) => showDetail(text, other, baseline);
    const kind = near.by === "graph" ? "Neighbours in the label graph" : "Labels with weights alike";
    place.hidden = false; // it has a width only then
    const width = Math.max(260, Math.min(640, place.clientWidth - 32));
    const close = make("button", { class: "close", type: "button", "aria-label": "Close", onclick: hideDetail }, "×");
    place.replaceChildren(
      make("header", {}, make("h2", { id: "detail-title", tabindex: -1 },
        `${found.label_text} `, make("span", { class: "soft" }, found.probability.toFixed(3))), close),
      ...judgeButtons(text, label, baseline), wordEffects(found), ...partShares(found), ...rememberedPoints(found), make("h3", {}, kind),
      near.neighbours.length ? neighbourGraph(near, width, again) : make("p", { class: "soft" }, "none above the threshold"),
      ...trainingLists(found));
    byId("detail-title").focus();
  } catch (error) {
    if (number === detail.asked) showStatus(byId("status"), error.message, true);
  }
}

function hideDetail() {
  detail.asked += 1;
  byId("detail").hidden = true;
  for (const button of document.querySelectorAll(".label[aria-expanded=true]")) button.setAttribute("aria-expanded", "false");
  if (detail.back && detail.back.isConnected) detail.back.focus();
}
