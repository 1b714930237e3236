// Small charts in SVG. Text is set as text, never as HTML: labels come from users.

const SVG = "http://www.w3.org/2000/svg";

/** An SVG element with attributes. */
export function svg(name, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  if (text !== null) element.textContent = text;
  return element;
}

/** An HTML element with a class and text. */
export function html(name, className = "", text = null) {
  const element = document.createElement(name);
  if (className) element.className = className;
  if (text !== null) element.textContent = text;
  return element;
}

const tip = () => document.getElementById("tip");

/** Show a text beside the pointer. */
export function showTip(event, text) {
  const box = tip();
  box.textContent = text;
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = Math.min(event.clientX + 14, innerWidth - width - 8);
  const top = event.clientY - height - 12 < 4 ? event.clientY + 18 : event.clientY - height - 12;
  box.style.left = `${Math.max(8, left)}px`;
  box.style.top = `${top}px`;
}

export function hideTip() {
  tip().hidden = true;
}

const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200];

/** About `count` round times between two, in seconds since 1970, in the time zone of the reader. */
export function timeTicks(low, high, count) {
  const days = Math.ceil((high - low) / 86400 / count);
  const step = STEPS.find((each) => (high - low) / each <= count) ?? 86400 * days;
  const shift = 60 * new Date(1000 * low).getTimezoneOffset();
  const found = [];
  for (let at = Math.ceil((low - shift) / step) * step + shift; at <= high; at += step) found.push(at);
  return found;
}

/** About `count` round numbers between two values. */
export function ticks(low, high, count) {
  const span = high - low || 1;
  const power = 10 ** Math.floor(Math.log10(span / count));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((each) => span / each <= count);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(i * step + 0);
  return found;
}

/**
 * A chart of lines.
 *
 * lines: [{name, points: [[x, y], …]}], the first in the first colour. marks: [{x, kind, name}], vertical lines.
 * range: the least and largest y. show: {x, y}, functions that write values. area: fill below the first line.
 * time: whether x is a time, in seconds since 1970.
 */
export function lineChart(holder, { lines, marks = [], range, show, count = 6, area = false, time = false }) {
  const width = holder.clientWidth, height = holder.clientHeight;
  const left = 42, right = 12, top = 18, bottom = 22;
  const all = lines.flatMap((line) => line.points);
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  if (!all.length || width < 80) {
    holder.replaceChildren(html("p", "empty", "Nothing to show yet: send labelled samples to /v1/observe."));
    return;
  }
  let [first, last] = [Math.min(...all.map((p) => p[0])), Math.max(...all.map((p) => p[0]))];
  if (first === last) [first, last] = [first - 1, last + 1];
  const [low, high] = range;
  const x = (value) => left + ((value - first) / (last - first)) * (width - left - right);
  const y = (value) => top + (1 - (value - low) / (high - low)) * (height - top - bottom);

  for (const value of ticks(low, high, height < 150 ? 2 : 5)) {
    picture.append(svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }));
    picture.append(svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, show.y(value)));
  }
  const most = Math.max(2, Math.min(count, width / 110));
  for (const value of time ? timeTicks(first, last, most) : ticks(first, last, most)) {
    const place = Math.min(Math.max(x(value), left + 14), width - right - 16);
    picture.append(svg("text", { x: place, y: height - 4, "text-anchor": "middle" }, show.x(value, false, last - first)));
  }
  let written = -Infinity; // where the last name ends
  for (const mark of marks.filter((each) => each.x >= first && each.x <= last)) {
    const place = x(mark.x);
    picture.append(svg("line", { class: `mark ${mark.kind}`, x1: place, x2: place, y1: top - 4, y2: height - bottom }));
    const wide = mark.name.length * 6.2 + 8;
    if (place - wide / 2 > written && place + wide / 2 < width) {
      const text = svg("text", { class: `mark-name ${mark.kind}`, x: place, y: top - 8, "text-anchor": "middle" }, mark.name);
      picture.append(text);
      written = place + wide / 2;
    }
  }
  const kinds = ["first", "second"];
  lines.forEach((line, i) => {
    if (!line.points.length) return;
    const path = line.points.map((p, k) => `${k ? "L" : "M"}${x(p[0]).toFixed(1)},${y(p[1]).toFixed(1)}`).join("");
    if (area && i === 0) {
      const base = `L${x(line.points.at(-1)[0]).toFixed(1)},${y(low)}L${x(line.points[0][0]).toFixed(1)},${y(low)}Z`;
      picture.append(svg("path", { class: "area", d: path + base }));
    }
    picture.append(svg("path", { class: `line ${kinds[i]}`, d: path }));
    if (line.points.length === 1) {
      picture.append(svg("circle", { class: kinds[i], cx: x(line.points[0][0]), cy: y(line.points[0][1]), r: 4 }));
    }
  });
  followPointer(picture, { lines, x, y, show, kinds, top, bottom, height, width });
  holder.replaceChildren(picture);
}

/** A cross-hair with the values nearest to the pointer. */
function followPointer(picture, { lines, x, y, show, kinds, top, bottom, height, width }) {
  const cross = svg("g");
  picture.append(cross);
  picture.addEventListener("pointerleave", () => {
    cross.replaceChildren();
    hideTip();
  });
  picture.addEventListener("pointermove", (event) => {
    const at = ((event.clientX - picture.getBoundingClientRect().left) / picture.getBoundingClientRect().width) * width;
    const nearest = lines.map((line) =>
      line.points.reduce((best, p) => (!best || Math.abs(x(p[0]) - at) < Math.abs(x(best[0]) - at) ? p : best), null),
    );
    const anchor = nearest.filter(Boolean).sort((a, b) => Math.abs(x(a[0]) - at) - Math.abs(x(b[0]) - at))[0];
    if (!anchor) return;
    cross.replaceChildren(
      svg("line", { class: "cross", x1: x(anchor[0]), x2: x(anchor[0]), y1: top, y2: height - bottom }),
    );
    const words = [show.x(anchor[0], true)];
    nearest.forEach((p, i) => {
      if (!p || Math.abs(x(p[0]) - x(anchor[0])) > 24) return;
      cross.append(svg("circle", { class: kinds[i], cx: x(p[0]), cy: y(p[1]), r: 4.5 }));
      words.push(`${lines[i].name}: ${show.y(p[1], true)}`);
    });
    showTip(event, words.join("\n"));
  });
}

/** A bar from 0 to 1. */
export function meter(share, low = false) {
  const bar = svg("svg", { viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true" });
  bar.append(svg("rect", { class: "track", width: 100, height: 8, rx: 2 }));
  const fill = Math.max(0, Math.min(1, share)) * 100;
  if (fill > 0) bar.append(svg("rect", { class: low ? "fill low" : "fill", width: fill, height: 8, rx: 2 }));
  return bar;
}

/** Counts of labels (rows) and answers (columns), shaded by the share of the row. */
export function confusion(holder, { labels, answers, counts }) {
  const longest = Math.max(...labels.map((l) => l.length), 4);
  const left = Math.min(longest, 14) * 7 + 30;
  const room = holder.clientWidth - left - 26;
  const cell = Math.max(22, Math.min(46, Math.floor(room / answers.length)));
  const slanted = answers.some((answer) => answer.length * 6.4 > cell);
  const slant = slanted ? Math.min(Math.max(...answers.map((answer) => answer.length)), 12) * 4.4 : 0;
  const last = Math.min((answers.at(-1) ?? "").length, 12) * 5.4 - cell / 2; // of a slanted name, beyond its column
  const top = 40 + slant, height = top + cell * labels.length + 4;
  const width = left + cell * answers.length + 4 + (slanted ? Math.max(last, 0) : 0);
  const picture = svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "img" });
  const cut = (text, most) => (text.length > most ? text.slice(0, most - 1) + "…" : text);
  picture.append(svg("text", { x: left + (cell * answers.length) / 2, y: 12, "text-anchor": "middle" }, "answer"));
  picture.append(svg("text", { x: 0, y: top - 8 }, "label"));
  answers.forEach((label, j) => {
    const place = { x: left + cell * (j + 0.5), y: top - 8, "text-anchor": "middle" };
    const turned = { ...place, "text-anchor": "start", transform: `rotate(-40 ${place.x} ${place.y})` };
    picture.append(svg("text", slanted ? turned : place, cut(label, 12)));
  });
  labels.forEach((label, i) => {
    const total = counts[i].reduce((sum, n) => sum + n, 0);
    picture.append(svg("text", { x: left - 8, y: top + cell * (i + 0.5) + 4, "text-anchor": "end" }, cut(label, 14)));
    answers.forEach((answer, j) => {
      const share = total ? counts[i][j] / total : 0;
      const place = { x: left + cell * j + 1, y: top + cell * i + 1, width: cell - 2, height: cell - 2, rx: 3 };
      picture.append(svg("rect", { ...place, class: "back" }));
      const shade = svg("rect", { ...place, "fill-opacity": counts[i][j] ? 0.1 + 0.9 * share : 0 });
      shade.addEventListener("pointermove", (event) =>
        showTip(event, `${label} answered as ${answer}: ${counts[i][j]} of ${total}`),
      );
      shade.addEventListener("pointerleave", hideTip);
      picture.append(shade);
      if (counts[i][j]) {
        const middle = { x: left + cell * (j + 0.5), y: top + cell * (i + 0.5) + 4, "text-anchor": "middle" };
        picture.append(
          svg("text", { ...middle, class: share > 0.55 ? "count on" : "count", "pointer-events": "none" }, counts[i][j]),
        );
      }
    });
  });
  holder.replaceChildren(picture);
}

/** A sample as a picture: {width, height, planes, pixels (base64)}. */
export function thumbnail({ width, height, planes, pixels }) {
  const canvas = html("canvas");
  canvas.width = width;
  canvas.height = height;
  const bytes = Uint8Array.from(atob(pixels), (c) => c.charCodeAt(0));
  const image = new ImageData(width, height);
  for (let i = 0; i < width * height; i++) {
    for (let plane = 0; plane < 3; plane++) {
      image.data[4 * i + plane] = bytes[planes === 3 ? plane * width * height + i : i];
    }
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}
