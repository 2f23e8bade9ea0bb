"use strict";
// Make elements, and send requests. Texts become text nodes, never markup.

function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

function makeSvg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

const byId = (id) => document.getElementById(id);

// Number with separators of thousands.
const counted = (number) => number.toLocaleString("en");

// Return the answer of the server; throw an Error with the server's sentence and status.
async function fetchJson(path, body, { headers = {}, signal } = {}) {
  const how = body === undefined ? { signal, headers } : {
    method: "POST", signal, body: JSON.stringify(body), headers: { "content-type": "application/json", ...headers },
  };
  let answer;
  try {
    answer = await fetch(path, how);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("The server does not answer. Is it still running?");
  }
  const found = await answer.json().catch(() => ({ error: `The server answered ${answer.status}.` }));
  if (answer.ok) return found;
  const error = new Error(found.error || `The server answered ${answer.status}.`);
  error.status = answer.status;
  throw error;
}

// Send a request with the token that was typed on the page.
function fetchWithToken(path, body) {
  return fetchJson(path, body, { headers: { authorization: `Bearer ${byId("token").value}` } });
}

function showStatus(place, sentence, bad = false) {
  place.textContent = sentence;
  place.classList.toggle("bad", bad);
}
