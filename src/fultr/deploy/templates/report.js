"use strict";
// Says what a cell of the strip stands for: when pointed at, tapped, or reached with the arrow keys.
for (const strip of document.querySelectorAll(".strip")) {
  const rows = [...strip.tBodies[0].rows].map((row) => [...row.querySelectorAll("td")]);
  const read = document.querySelector(".read");
  const around = strip.parentElement;
  let at = [0, (rows[0]?.length ?? 1) - 1];
  let marked = null;

  const show = (cell) => {
    marked?.classList.remove("at");
    marked = cell;
    marked?.classList.add("at");
    read.textContent = cell?.title ?? "";
  };
  const pointed = (event) => {
    const cell = event.target.closest("td");
    if (!cell) return;
    const row = rows.findIndex((cells) => cells.includes(cell));
    at = [row, rows[row].indexOf(cell)];
    show(cell);
  };
  strip.addEventListener("pointerover", pointed);
  strip.addEventListener("pointerdown", pointed);
  around.addEventListener("blur", () => show(null));
  around.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (event.key === "Escape") show(null);
    if (!step || !rows.length) return;
    event.preventDefault();
    const limits = [rows.length - 1, rows[0].length - 1];
    if (marked) at = at.map((place, i) => Math.min(Math.max(place + step[i], 0), limits[i]));
    const cell = rows[at[0]][at[1]];
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
    show(cell);
  });
}
