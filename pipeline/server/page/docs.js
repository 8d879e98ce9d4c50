// The OpenAPI description as a page.

import { byId, element } from "./charts/dom.js";

const schema = await (await fetch("/openapi.json")).json();
const place = byId("operations");

const plain = (text) => text.replaceAll("`", "");

const named = ({ $ref: reference }) => reference.split("/").at(-1);
const resolved = (node) => (node.$ref ? schema.components.schemas[named(node)] : node);

function typeOf(node) {
  if (node.$ref) return resolved(node).enum ? typeOf(resolved(node)) : named(node);
  if (node.anyOf) return node.anyOf.map(typeOf).join(" or ");
  if (node.type === "array") return node.items ? `list of ${typeOf(node.items)}` : `list of ${node.prefixItems.map(typeOf).join(", ")}`;
  if (node.enum ?? node.const) return [node.enum ?? node.const].flat().map((value) => JSON.stringify(value)).join(", ");
  return node.format ? `${node.type} (${node.format})` : node.type ?? "anything";
}

function fieldsOf(node) {
  const object = resolved(node);
  const required = new Set(object.required ?? []);
  const rows = Object.entries(object.properties ?? {}).flatMap(([name, field]) => [
    element("dt", {}, element("code", {}, name)),
    element("dd", {}, typeOf(field) + (required.has(name) ? "" : ", may be left out"), ...insideOf(field)),
  ]);
  return element("dl", {}, ...rows);
}

/** The fields of an object, or of the objects in a list. */
function insideOf(field) {
  const inner = resolved(field.items ?? field);
  return inner.properties ? [fieldsOf(inner)] : [];
}

function part(title, ...content) {
  return [element("h3", {}, title), ...content];
}

function operation(path, verb, { summary, description, parameters = [], requestBody, responses, security }) {
  const card = element("section", { class: "card" });
  card.append(element("h2", {}, element("span", { class: "verb" }, verb.toUpperCase()), element("code", {}, path)));
  card.append(element("p", {}, element("strong", {}, summary ?? "")), element("p", {}, plain(description ?? "")));
  if (security) card.append(element("p", { class: "hint" }, "Needs a bearer token if the service has tokens."));
  if (parameters.length) {
    const rows = parameters.flatMap(({ name, in: where, schema: node }) => [
      element("dt", {}, element("code", {}, name)), element("dd", {}, `${typeOf(node)}, in the ${where}`)]);
    card.append(...part("Parameters", element("dl", {}, ...rows)));
  }
  for (const [kind, { schema: node }] of Object.entries(requestBody?.content ?? {})) {
    card.append(...part(`Body: ${kind}`, fieldsOf(node)));
  }
  for (const [code, answer] of Object.entries(responses)) {
    const [kind, content] = Object.entries(answer.content ?? {})[0] ?? [];
    if (!code.startsWith("2")) continue;
    card.append(...part(`Answer ${code}: ${kind ?? ""}`));
    if (content?.schema) card.append(fieldsOf(content.schema));
  }
  return card;
}

place.append(...schema.info.description.trim().split("\n\n").map((text) => element("p", {}, plain(text))));
for (const [path, verbs] of Object.entries(schema.paths)) {
  for (const [verb, details] of Object.entries(verbs)) place.append(operation(path, verb, details));
}
place.append(element("section", { class: "card" },
  element("h2", {}, "Errors"), element("p", {}, "Every error is a problem (RFC 9457):"),
  fieldsOf(schema.components.schemas.Problem)));
