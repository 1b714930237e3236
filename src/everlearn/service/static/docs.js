// The documentation of the operations, made from /openapi.json. Nothing is loaded from elsewhere.

import { html } from "/static/charts.js";

function operation(path, method, about) {
  const box = html("article", "operation");
  const head = html("h3");
  head.append(html("span", "method", method.toUpperCase()), path);
  box.append(head);
  for (const part of (about.description ?? about.summary ?? "").split("\n\n")) {
    const line = html("p");
    part.split("`").forEach((text, i) => line.append(i % 2 ? html("code", "", text) : text));
    box.append(line);
  }
  const content = about.requestBody?.content;
  const schema = content?.["application/json"]?.schema;
  if (schema) {
    const rows = Object.entries(schema.properties).map(([name, field]) => {
      const row = html("tr");
      const cell = html("td");
      cell.append(html("code", "", name));
      const needed = schema.required.includes(name) ? "required" : "";
      row.append(cell, html("td", "", field.type ?? "any"), html("td", "", needed), html("td", "", field.description ?? ""));
      return row;
    });
    const table = html("table");
    table.append(...rows);
    box.append(table);
    const kinds = Object.keys(content).filter((kind) => kind !== "application/json");
    for (const kind of kinds) box.append(html("p", "note", `${kind}: ${content[kind].schema.description}`));
    const example = Object.fromEntries(
      Object.entries(schema.properties)
        .filter(([name, field]) => field.example !== undefined && (schema.required.includes(name) || name === "ids"))
        .map(([name, field]) => [name, field.example]),
    );
    const call = `curl ${location.origin}${path} -H 'Content-Type: application/json' -d '${JSON.stringify(example)}'`;
    box.append(html("pre", "", call));
  }
  const answer = about.responses?.["200"]?.content?.["application/json"]?.example;
  if (answer) box.append(html("pre", "", JSON.stringify(answer)));
  return box;
}

const answer = await fetch("/openapi.json");
const { info, paths } = await answer.json();
document.getElementById("about").textContent = `${info.title} ${info.version}: ${info.description}`;
const list = document.getElementById("operations");
list.append(
  html("p", "note", "With several models, /v1/observe is /v1/models/NAME/observe, and so on. An error is {\"detail\": \"a sentence\"}."),
);
for (const [path, methods] of Object.entries(paths)) {
  if (path.startsWith("/v1/models/{")) continue;
  for (const [method, about] of Object.entries(methods)) list.append(operation(path, method, about));
}
