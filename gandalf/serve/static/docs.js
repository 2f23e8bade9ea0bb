"use strict";
// The OpenAPI document as a list of paths, with the schema of what is sent and answered.

function named(document, schema) {
  const name = schema && schema.$ref && schema.$ref.split("/").pop();
  return name ? [name, document.components.schemas[name]] : ["", schema || {}];
}

function shape(document, schema) {
  const [, found] = named(document, schema);
  const type = (one) => (one.anyOf ? one.anyOf.map(type).join(" or ") : one.$ref ? one.$ref.split("/").pop()
    : one.type === "array" ? `list of ${type(one.items || {})}` : one.type || "anything");
  return Object.entries(found.properties || {}).map(([name, one]) => {
    const needed = (found.required || []).includes(name) ? "" : " (optional)";
    return `${name}: ${type(one)}${needed}${one.description ? `. ${one.description}` : ""}`;
  }).join("\n");
}

function operation(document, path, method, one) {
  const content = (part) => part && part.content && part.content["application/json"] && part.content["application/json"].schema;
  const sent = content(one.requestBody), good = Object.entries(one.responses).find(([code]) => code < 300);
  const parts = [make("h2", {}, `${method.toUpperCase()} ${path}`), make("p", {}, one.description || one.summary || "")];
  const asked = (one.parameters || []).map((each) => `${each.name}: ${each.description || each.schema.type || ""}`).join("\n");
  for (const [title, text] of [["Query", asked], ["Body", sent && shape(document, sent)], ["Answer", good && shape(document, content(good[1]))]]) {
    if (text) parts.push(make("h3", {}, title), make("pre", {}, text));
  }
  parts.push(make("p", { class: "soft" }, `Status: ${Object.keys(one.responses).join(", ")}`));
  return make("section", {}, ...parts);
}

ask("/openapi.json").then((document) => {
  const all = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => operation(document, path, method, one)));
  at("paths").replaceChildren(...all);
}, (error) => tell(at("status"), error.message, true));
