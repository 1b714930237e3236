"use strict";
// A click on a head sorts its table by that column: numbers largest first, names from a to z; the second click
// the other way; the third puts all back as it was.
function sortBy(button) {
  const head = button.closest("th"), table = head.closest("table"), body = table.tBodies[0];
  const column = [...head.parentElement.cells].indexOf(head);
  const rows = [...body.rows];
  const value = (row) => row.cells[column]?.dataset.value ?? "";
  const filled = rows.filter((row) => value(row) !== "");
  const numeric = filled.every((row) => !Number.isNaN(Number(value(row))));
  rows.forEach((row, place) => { row.dataset.place ??= place; });
  const first = numeric ? "descending" : "ascending", second = numeric ? "ascending" : "descending";
  const next = { null: first, [first]: second, [second]: null }[head.getAttribute("aria-sort")];
  for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
  if (next === null) {
    body.append(...rows.sort((a, b) => a.dataset.place - b.dataset.place));
    return;
  }
  head.setAttribute("aria-sort", next);
  const order = (a, b) => numeric ? Number(value(a)) - Number(value(b)) : value(a).localeCompare(value(b));
  filled.sort((a, b) => next === "ascending" ? order(a, b) : order(b, a));
  // What was not measured stays at the end, whichever way.
  body.append(...filled, ...rows.filter((row) => value(row) === ""));
}
function showTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!(target instanceof HTMLDetailsElement)) return;
  for (let fold = target; fold; fold = fold.parentElement.closest("details")) fold.open = true;
  target.scrollIntoView();
}
document.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (!button) return;
  if (button.matches("th button")) sortBy(button);
  if (button.matches(".copy")) {
    navigator.clipboard?.writeText(button.previousElementSibling.textContent);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  }
  if (button.matches(".download")) {
    const source = document.getElementById(button.dataset.source);
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([source.textContent], { type: source.dataset.type }));
    link.download = button.dataset.name;
    link.click();
  }
});
addEventListener("hashchange", showTarget);
showTarget();
