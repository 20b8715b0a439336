"use strict";
// Reads numbers off the panels: a line at the nearest measured round, and every curve's value there.
for (const plot of document.querySelectorAll(".plot")) {
  const data = JSON.parse(plot.querySelector("script").textContent);
  const svg = plot.querySelector("svg");
  const tip = plot.querySelector(".tip");
  const view = svg.viewBox.baseVal;
  const [left, top, width, height] = data.box;
  const scale = data.log ? Math.log : Number;
  const [first, last] = data.x.map(scale);
  const places = [...new Set(data.lines.flatMap((line) => line.x))].sort((a, b) => a - b);
  const names = new Map(data.ticks);
  let at = places.length - 1;

  const across = (x) => view.width * (left + (width * (scale(x) - first)) / (last - first));
  const down = (y) => view.height * (top + (height * (data.y[1] - y)) / (data.y[1] - data.y[0]));
  const nearest = (xs, x) => xs.reduce((best, one, i) => (Math.abs(one - x) < Math.abs(xs[best] - x) ? i : best), 0);
  const speak = (x) => names.get(x) ?? x.toLocaleString("en");

  const overlay = svg.appendChild(document.createElementNS(svg.namespaceURI, "g"));
  const drawn = (kind, attributes) => {
    const made = overlay.appendChild(document.createElementNS(svg.namespaceURI, kind));
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  };
  const added = (parent, kind, text) => {
    const made = parent.appendChild(document.createElement(kind));
    made.textContent = text;
    return made;
  };

  const hide = () => {
    overlay.replaceChildren();
    tip.hidden = true;
  };

  const show = () => {
    hide();
    const x = places[at];
    const here = x === undefined ? 0 : across(x);
    const read = data.lines.map((line) => {
      const i = line.x.length ? nearest(line.x, x) : 0;
      return { line, own: line.x.length ? line.x[i] : x, level: !line.x.length, mean: line.mean[i], error: line.error[i] };
    });
    if (x !== undefined) {
      const y = [view.height * top, view.height * (top + height)];
      drawn("line", { x1: here, x2: here, y1: y[0], y2: y[1], stroke: "#1a2230", "stroke-width": 0.7 });
    }
    for (const { line, own, level, mean } of read) {
      if (level || mean < data.y[0] || mean > data.y[1]) continue;
      drawn("circle", { cx: across(own), cy: down(mean), r: 3.2, fill: line.colour, stroke: "#fff", "stroke-width": 1 });
    }
    tip.replaceChildren();
    if (x !== undefined) added(tip, "b", `${data.label} ${data.ticks.length ? "= " : ""}${speak(x)}`);
    for (const { line, own, mean, error } of read.sort((a, b) => b.mean - a.mean)) {
      const row = added(tip, "div", "");
      added(row, "i", "").style.background = line.colour;
      added(row, "span", line.name + (own === x ? "" : ` (at ${speak(own)})`));
      added(row, "em", mean.toFixed(4) + (error === undefined ? "" : ` ± ${error.toFixed(4)}`));
    }
    // Below the axis, over the legend, so that it never covers a curve.
    const size = svg.getBoundingClientRect();
    tip.style.top = `${size.top - plot.getBoundingClientRect().top + size.height * (top + height) + 20}px`;
    tip.hidden = false;
  };

  const point = (event) => {
    const size = svg.getBoundingClientRect();
    const x = (view.width * (event.clientX - size.left)) / size.width;
    at = nearest(places.map(across), x);
    show();
  };
  plot.addEventListener("pointermove", point);
  plot.addEventListener("pointerdown", point);
  plot.addEventListener("pointerleave", (event) => event.pointerType === "touch" || hide()); // stays when the finger lifts
  plot.addEventListener("blur", hide);
  document.addEventListener("pointerdown", (event) => plot.contains(event.target) || hide());
  plot.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1, Home: -places.length, End: places.length }[event.key];
    if (event.key === "Escape") hide();
    if (step === undefined) return;
    event.preventDefault();
    if (!tip.hidden) at += step;
    at = Math.min(Math.max(at, 0), places.length - 1);
    show();
  });
}
for (const hint of document.querySelectorAll(".scripted")) hint.style.display = "inline";
