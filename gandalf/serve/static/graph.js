"use strict";
// Draw a label and its neighbours: half of them on either side, thicker lines for larger targets.

const ROW = 30, EDGE = 18, LETTER = 6.4;

function shortened(text, width) {
  const letters = Math.max(4, Math.floor(width / LETTER));
  return text.length > letters ? `${text.slice(0, letters - 1)}…` : text;
}

function makeNode(one, place, width, choose) {
  const left = place.side < 0;
  const name = makeSvg("text", {
    x: place.x + place.side * 9, y: place.y + 4, "text-anchor": left ? "end" : "start",
  }, shortened(one.text, width));
  const group = makeSvg("g", { class: "node", tabindex: 0, role: "button", "aria-label": one.text },
    makeSvg("title", {}, `${one.text}: ${one.similarity.toFixed(2)}`),
    makeSvg("circle", { cx: place.x, cy: place.y, r: 4 + 4 * Math.max(0, one.similarity) }), name);
  group.addEventListener("click", () => choose(one.label));
  group.addEventListener("keydown", (event) => {
    if (event.key === "Enter" || event.key === " ") { event.preventDefault(); choose(one.label); }
  });
  return group;
}

function neighbourGraph(near, width, choose) {
  const rows = Math.ceil(near.neighbours.length / 2);
  const height = Math.max(rows * ROW, 90) + 2 * EDGE;
  const centre = { x: width / 2, y: height / 2 };
  const picture = makeSvg("svg", { class: "graph", viewBox: `0 0 ${width} ${height}`, role: "group",
    "aria-label": `Neighbours of ${near.text}` });
  const places = new Map();
  near.neighbours.forEach((one, number) => {
    const side = number % 2 ? 1 : -1;
    const inSide = side < 0 ? Math.ceil(near.neighbours.length / 2) : Math.floor(near.neighbours.length / 2);
    const y = EDGE + (height - 2 * EDGE) * ((Math.floor(number / 2) + 0.5) / inSide);
    const away = 1 - 0.5 * ((2 * y) / height - 1) ** 2;
    places.set(one.label, { side, y, x: centre.x + side * width * 0.21 * away });
  });
  for (const [from, to, weight] of near.links) {
    const [a, b] = [places.get(from), places.get(to)];
    if (a && b) picture.append(makeSvg("line", { class: "link", x1: a.x, y1: a.y, x2: b.x, y2: b.y, "stroke-width": weight }));
  }
  for (const one of near.neighbours) {
    const place = places.get(one.label);
    picture.append(makeSvg("line", { x1: centre.x, y1: centre.y, x2: place.x, y2: place.y,
      "stroke-width": 0.6 + 4 * Math.max(0, one.similarity), opacity: 0.7 }));
  }
  for (const one of near.neighbours) {
    const place = places.get(one.label);
    picture.append(makeNode(one, place, (place.side < 0 ? place.x : width - place.x) - 12, choose));
  }
  picture.append(makeSvg("g", { class: "centre" }, makeSvg("title", {}, near.text),
    makeSvg("circle", { cx: centre.x, cy: centre.y, r: 10 })));
  return picture;
}
