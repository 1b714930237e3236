// The dashboard: reads server-sent events of one model, and shows each.

import { confusion, html, lineChart, meter, thumbnail } from "/static/charts.js";

const $ = (id) => document.getElementById(id);
const percent = (share, digits = 1) => (share === null || share === undefined ? "–" : `${(100 * share).toFixed(digits)}\u00a0%`);
const whole = (number) => number.toLocaleString("en");
const state = { axis: "time", sort: ["learnt", -1], shown: null, stop: null };

function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.001) return `${(1e6 * value).toFixed(0)} µs`;
  if (value < 1) return `${(1e3 * value).toFixed(value < 0.01 ? 1 : 0)} ms`;
  if (value < 120) return `${value.toFixed(value < 10 ? 1 : 0)} s`;
  if (value < 7200) return `${(value / 60).toFixed(0)} min`;
  return value < 172800 ? `${(value / 3600).toFixed(0)} h` : `${(value / 86400).toFixed(0)} d`;
}

function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  const place = value < 1 ? 0 : Math.min(4, Math.floor(Math.log10(value) / 3));
  return `${(value / 1000 ** place).toFixed(place && value / 1000 ** place < 10 ? 1 : 0)} ${units[place]}`;
}

function clock(time, exact = false, span = 86400) {
  const date = new Date(1000 * time);
  exact ||= span < 600;
  const old = Date.now() - date > 86400000;
  const day = old ? `${date.toLocaleDateString("en", { month: "short", day: "numeric" })} ` : "";
  return day + date.toLocaleTimeString("en", { hour: "2-digit", minute: "2-digit", hour12: false, ...(exact && { second: "2-digit" }) });
}

// Figures.

function tile(name, value, more = "", alarm = false) {
  const box = html("div", alarm ? "tile alarm" : "tile");
  box.append(html("div", "name", name), html("div", "value", value), html("div", "more", more));
  return box;
}

function showTiles(shown) {
  const { accuracy } = shown;
  const since = accuracy.count ? `${percent(accuracy.overall)} over all ${whole(accuracy.count)}` : "no labels yet";
  const share = shown.never_told === null ? "" : `${percent(shown.never_told)} never told`;
  const late = shown.delay === null ? share : `label after ${seconds(shown.delay)}`;
  $("tiles").replaceChildren(
    tile(accuracy.window ? `accuracy, last ${whole(accuracy.window)}` : "accuracy", percent(accuracy.rolling), since),
    tile("samples learnt", whole(shown.samples), `${whole(shown.batches)} batches`),
    tile("classes", whole(shown.classes), `${whole(shown.exemplars)} exemplars, ${bytes(shown.memory_bytes)}`),
    tile("waiting for a label", whole(shown.waiting), late),
    tile("unknown", accuracy.unknown === null ? "–" : percent(accuracy.unknown), accuracy.unknown === null ? "" : "of the last answers"),
    tile("drift alarms", whole(shown.alarms), shown.refused ? `${whole(shown.refused)} batches refused` : "no batch refused", shown.alarms > 0),
  );
}

function showCurve(shown) {
  const place = state.axis === "time" ? 1 : 0;
  const named = { answers: "answers, when told", tested: "before learning" };
  const lines = Object.entries(named)
    .map(([key, name]) => ({ name, points: shown.curve[key].map((p) => [p[place], p[3]]) }))
    .filter((line) => line.points.length);
  const marks = shown.events
    .filter((event) => ["new class", "drift", "refused"].includes(event.event))
    .map((event) => ({
      x: state.axis === "time" ? event.time : event.position,
      kind: event.event === "new class" ? "class" : event.event,
      name: event.event === "new class" ? event.label : event.event,
    }));
  const legend = lines.map((line, i) => html("span", i ? "second" : "first", line.name));
  if (marks.some((mark) => mark.kind === "class")) legend.push(html("span", "class", "new class"));
  if (marks.some((mark) => mark.kind === "drift")) legend.push(html("span", "drift", "drift alarm"));
  $("curve-legend").replaceChildren(...legend);
  const values = lines.flatMap((line) => line.points.map((p) => p[1]));
  const low = values.length ? Math.max(0, Math.floor(10 * Math.min(...values) - 0.5) / 10) : 0;
  lineChart($("curve"), {
    lines,
    marks,
    range: [Math.min(low, 0.8), 1],
    time: state.axis === "time",
    show: {
      x: (value, exact, span) => (state.axis === "time" ? clock(value, exact, span) : whole(Math.round(value))),
      y: (value, exact) => percent(value, exact ? 1 : 0),
    },
  });
}

function showSpeed(shown) {
  const top = Math.max(...shown.rates.map(([, rate]) => rate), 10);
  $("rate-note").textContent = `${whole(Math.round(shown.rate))} samples/s; the last two minutes`;
  lineChart($("rate"), {
    lines: [{ name: "samples/s", points: shown.rates }],
    range: [0, 1.1 * top],
    count: 4,
    area: true,
    time: true,
    show: { x: clock, y: (value, exact) => whole(Math.round(value)) + (exact ? " per second" : "") },
  });
  const facts = [
    ["queue", `${shown.queue} of ${shown.queue_limit}`],
    ["snapshot lag", `${whole(shown.lag)} change${shown.lag === 1 ? "" : "s"}`],
    ["step", seconds(shown.step)],
    ["commit", seconds(shown.fsync)],
    ["position", whole(shown.position)],
    ["predictions", whole(shown.predictions)],
    ["snapshot on disk", `${seconds(shown.snapshot_age)} old`],
    ["journal", bytes(shown.journal_bytes)],
  ];
  $("speed").replaceChildren(
    ...facts.map(([name, value]) => {
      const box = html("div");
      box.append(html("dt", "", name), html("dd", "", value));
      return box;
    }),
  );
}

function showSource({ consumer }) {
  const line = $("source");
  line.hidden = consumer === null;
  if (consumer === null) return;
  const skipped = consumer.skipped ? `, ${whole(consumer.skipped)} skipped` : "";
  line.className = consumer.error ? "source bad" : "source";
  line.textContent = consumer.error ?? `from ${consumer.source}: ${whole(consumer.applied)} messages applied${skipped}`;
  line.title = consumer.last_skipped ?? "";
}

const SAID = {
  "new class": (event) => `new class ${event.label}`,
  drift: (event) => `drift alarm${event.detector ? ` of ${event.detector}` : ""}, accuracy ${percent(event.accuracy)}`,
  refused: (event) => `batch refused: ${event.reason}`,
  forgotten: (event) => `class ${event.label} forgotten`,
  deleted: (event) => `samples deleted, ${event.exemplars} of them exemplars`,
  corrected: (event) => `labels corrected of ${event.exemplars} exemplars`,
};

function showEvents(shown) {
  const rows = shown.events.slice(-60).reverse().map((event) => {
    const row = html("li", event.event.replace(" ", "-"));
    const time = html("time", "", clock(event.time, true));
    time.title = `position ${whole(event.position)}`;
    row.append(time, html("span", "what", (SAID[event.event] ?? (() => event.event))(event)));
    return row;
  });
  $("events-note").textContent = rows.length ? "newest first" : "";
  $("events").replaceChildren(...(rows.length ? rows : [html("li", "empty", "Nothing has happened yet.")]));
}

function showClasses(shown) {
  const [key, direction] = state.sort;
  const order = (row) => (row[key] === null ? -Infinity : row[key]);
  const rows = [...shown.per_class].sort((a, b) =>
    key === "label" ? direction * a.label.localeCompare(b.label, "en", { numeric: true }) : direction * (order(a) - order(b)),
  );
  const most = Math.max(...rows.map((row) => row.exemplars), 1);
  $("classes-note").textContent = rows.length
    ? `accuracy over the last ${whole(shown.accuracy.window)} ${shown.accuracy.source === "answers" ? "answers" : "samples"}`
    : "";
  $("classes").tBodies[0].replaceChildren(
    ...rows.map((row) => {
      const line = html("tr");
      const label = html("td", "label", row.label);
      label.title = row.label;
      const right = html("td", "number"), held = html("td", "number");
      const accuracy = html("div", "meter"), memory = html("div", "meter");
      if (row.accuracy !== null) accuracy.append(meter(row.accuracy, row.accuracy < 0.5));
      accuracy.append(html("span", "", percent(row.accuracy)));
      memory.append(meter(row.exemplars / most), html("span", "", whole(row.exemplars)));
      right.append(accuracy);
      held.append(memory);
      line.append(label, right, html("td", "number", whole(row.learnt)), held);
      return line;
    }),
  );
  for (const button of document.querySelectorAll("#classes th button")) {
    const head = button.closest("th");
    if (button.dataset.sort === key) head.ariaSort = direction > 0 ? "ascending" : "descending";
    else head.removeAttribute("aria-sort");
  }
}

function showConfusion(shown) {
  const { labels, answers, counts, left_out: leftOut } = shown.confusion;
  if (!labels.length) {
    $("confusion-note").textContent = "";
    $("confusion").replaceChildren(html("p", "empty", "It appears when labels arrive."));
    return;
  }
  $("confusion-note").textContent = leftOut
    ? `the ${labels.length} classes with most errors; ${leftOut} others are not shown`
    : "shaded by the share of each row";
  confusion($("confusion"), { labels, answers, counts });
}

function showMistakes(shown) {
  const pictures = shown.mistakes.some((each) => each.picture);
  $("mistakes").className = pictures ? "mistakes" : "mistakes rows";
  $("mistakes-note").textContent = shown.mistakes.length ? "label → answer, newest first" : "";
  const boxes = shown.mistakes.slice(0, pictures ? 24 : 12).map((each) => {
    const box = html("div", "mistake");
    if (each.picture) box.append(thumbnail(each.picture));
    const pair = html("div", "pair");
    pair.append(html("b", "", each.label), " ", html("span", "said", `→ ${each.answer}`));
    pair.title = `${each.label} → ${each.answer}${each.id === null ? "" : `, id ${each.id}`}, position ${each.position}`;
    box.append(pair);
    if (each.values) box.append(html("code", "", each.values));
    return box;
  });
  $("mistakes").replaceChildren(...(boxes.length ? boxes : [html("p", "empty", "None so far.")]));
}

function show(shown) {
  state.shown = shown;
  $("main").hidden = false;
  $("about").textContent = `${shown.learner} · ${shown.network} · everlearn ${shown.version}`;
  document.title = `${percent(shown.accuracy.rolling, 0)} · ${shown.model} · everlearn`;
  const select = $("model");
  select.hidden = shown.models.length < 2;
  if (select.options.length !== shown.models.length) {
    select.replaceChildren(...shown.models.map((name) => new Option(name, name)));
  }
  select.value = shown.model;
  for (const part of [showTiles, showCurve, showSpeed, showSource, showEvents, showClasses, showConfusion, showMistakes]) part(shown);
}

// The connection. Server-sent events are read with fetch, since EventSource can't send a token.

function connected(on, text) {
  $("live").className = `state ${on ? "on" : "off"}`;
  $("live").textContent = text;
}

async function follow(model, signal) {
  const token = sessionStorage.getItem("everlearn-token");
  const path = model ? `/v1/models/${encodeURIComponent(model)}/events` : "/v1/events";
  const answer = await fetch(path, { signal, headers: token ? { Authorization: `Bearer ${token}` } : {} });
  if (answer.status === 401 || answer.status === 403) {
    $("token-error").textContent = token ? (await answer.json()).detail : "";
    $("token-form").hidden = false;
    $("main").hidden = true;
    connected(false, "token needed");
    return "stop";
  }
  if (answer.status === 404 && !model) return first();
  if (!answer.ok) throw new Error(answer.statusText);
  $("token-form").hidden = true;
  connected(true, "live");
  let text = "";
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) throw new Error("the connection has ended");
    text += value;
    const parts = text.split("\n\n");
    text = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) show(JSON.parse(part.slice(6)));
  }
}

async function first() {
  const token = sessionStorage.getItem("everlearn-token");
  const answer = await fetch("/v1/models", { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  const { models } = await answer.json();
  open(models[0].name);
  return "stop";
}

async function open(model = null) {
  state.stop?.abort();
  const control = new AbortController();
  state.stop = control;
  for (let wait = 500; !control.signal.aborted; wait = Math.min(2 * wait, 8000)) {
    try {
      if ((await follow(model, control.signal)) === "stop") return;
    } catch (error) {
      if (control.signal.aborted) return;
      connected(false, "reconnecting");
    }
    await new Promise((done) => setTimeout(done, wait));
  }
}

$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("everlearn-token", $("token").value.trim());
  $("token").value = "";
  open();
});
$("model").addEventListener("change", () => open($("model").value));
for (const button of document.querySelectorAll("[data-axis]")) {
  button.addEventListener("click", () => {
    state.axis = button.dataset.axis;
    for (const each of document.querySelectorAll("[data-axis]")) each.ariaPressed = String(each === button);
    if (state.shown) showCurve(state.shown);
  });
}
for (const button of document.querySelectorAll("[data-sort]")) {
  button.addEventListener("click", () => {
    const [key, direction] = state.sort;
    state.sort = [button.dataset.sort, key === button.dataset.sort ? -direction : button.dataset.sort === "label" ? 1 : -1];
    if (state.shown) showClasses(state.shown);
  });
}
addEventListener("resize", () => state.shown && show(state.shown));
open();
