"use strict";
// List the paths of the OpenAPI document, with the fields of requests and answers.

function resolved(document, schema) {
  const name = schema && schema.$ref && schema.$ref.split("/").pop();
  return name ? [name, document.components.schemas[name]] : ["", schema || {}];
}

function fieldsOf(document, schema) {
  const [, found] = resolved(document, schema);
  const type = (one) => (one.anyOf ? one.anyOf.map(type).join(" or ") : one.$ref ? one.$ref.split("/").pop()
    : one.type === "array" ? `list of ${type(one.items || {})}` : one.type || "anything");
  return Object.entries(found.properties || {}).map(([name, one]) => {
    const needed = (found.required || []).includes(name) ? "" : " (optional)";
    return `${name}: ${type(one)}${needed}${one.description ? `. ${one.description}` : ""}`;
  }).join("\n");
}

function describeOperation(document, path, method, one) {
  const content = (part) => part && part.content && part.content["application/json"] && part.content["application/json"].schema;
  const sent = content(one.requestBody), good = Object.entries(one.responses).find(([code]) => code < 300);
  const parts = [make("h2", {}, `${method.toUpperCase()} ${path}`), make("p", {}, one.description || one.summary || "")];
  const asked = (one.parameters || []).map((each) => `${each.name}: ${each.description || each.schema.type || ""}`).join("\n");
  for (const [title, text] of [["Query", asked], ["Body", sent && fieldsOf(document, sent)], ["Answer", good && fieldsOf(document, content(good[1]))]]) {
    if (text) parts.push(make("h3", {}, title), make("pre", {}, text));
  }
  parts.push(make("p", { class: "soft" }, `Status: ${Object.keys(one.responses).join(", ")}`));
  return make("section", {}, ...parts);
}

fetchJson("/openapi.json").then((document) => {
  const all = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, one]) => describeOperation(document, path, method, one)));
  byId("paths").replaceChildren(...all);
}, (error) => showStatus(byId("status"), error.message, true));
