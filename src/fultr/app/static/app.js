// The search page: results as you type, by keyboard or pointer, and a reader beside them.

import { ago, ask, clean, counted, element, exactly, marked, tell } from "./shared.js";

const SEEN = 1000; // milliseconds on display after which results count as seen
const at = (id) => document.getElementById(id);
const [query, list, status, more, welcome, reader] = ["query", "results", "status", "more", "welcome", "reader"].map(at);

let found = null; // the answer on display
let active = -1; // the option that the keyboard is on
let reading = null; // the result in the reader
let asking = null; // the request under way
let seen = 0; // the timer after which results count as seen
let known = null; // what is indexed

// Searching

async function search() {
  asking?.abort();
  clearTimeout(seen);
  const typed = query.value;
  if (!typed.trim()) return show(null);
  asking = new AbortController();
  const parameters = { q: typed };
  const kinds = [...at("kinds").querySelectorAll("[aria-pressed=true]")].map((button) => button.dataset.kind);
  if (kinds.length) parameters.kinds = kinds.join(",");
  if (at("age").value) parameters.since = Math.floor(Date.now() / 1000 - at("age").value * 86400);
  try {
    show(await ask("search", parameters, asking.signal));
  } catch (error) {
    if (error.name === "AbortError") return;
    show(null);
    status.textContent = error.message;
  }
}

function show(answer) {
  found = answer;
  active = -1;
  list.replaceChildren();
  query.removeAttribute("aria-activedescendant");
  query.setAttribute("aria-expanded", String(Boolean(answer?.count)));
  more.hidden = !answer || answer.count <= answer.results.length;
  welcome.hidden = Boolean(answer);
  if (!answer) {
    status.textContent = "";
    return;
  }
  answer.results.forEach(add);
  if (answer.count) {
    status.textContent = answer.count === 1 ? "One result" : `${answer.count} results`;
    more.textContent = `Show ${answer.count - answer.results.length} more`;
    seen = setTimeout(() => tell("shown", { id: answer.id }).catch(() => {}), SEEN);
  } else {
    status.textContent = "Nothing found. Try fewer or other words, or all kinds and times.";
  }
}

function add(result) {
  const ending = /\.([a-z0-9]{1,5})$/i.exec(result.name)?.[1] ?? result.kind.slice(0, 4);
  const tile = element("span", { class: `tile ${result.kind}`, "aria-hidden": "true" }, ending.toLowerCase());
  const heading = element("span", { class: "name" }, element("bdi", {}, clean(result.title || result.name)));
  const time = element("time", { title: exactly(result.time) }, ago(result.time));
  const where = element("span", { class: "where" }, element("bdi", {}, clean(result.title ? `${result.folder}/${result.name}` : result.folder)));
  const passage = element("span", { class: "passage" }, marked(clean(result.passage), result.marks));
  const words = element("span", { class: "words" }, element("span", { class: "first" }, heading, time), where, passage);
  const option = element("li", { role: "option", id: `result-${result.index}`, "aria-selected": "false" }, tile, words);
  option.addEventListener("click", () => {
    choose(result.index);
    open(result);
  });
  list.append(option);
}

more.addEventListener("click", async () => {
  const answer = found;
  const { results } = await ask("more", { id: answer.id });
  if (answer !== found) return;
  found.results.push(...results);
  results.forEach(add);
  more.hidden = true;
  query.focus();
});

function choose(index) {
  list.children[active]?.setAttribute("aria-selected", "false");
  active = index;
  const option = list.children[index];
  option.setAttribute("aria-selected", "true");
  option.scrollIntoView({ block: "nearest" });
  query.setAttribute("aria-activedescendant", option.id);
}

// Reading

async function open(result) {
  const answer = found;
  const body = at("text");
  at("reader-problem").hidden = true;
  at("reasons").hidden = true;
  at("why").setAttribute("aria-expanded", "false");
  at("reader-name").replaceChildren(element("bdi", {}, clean(result.title || result.name)));
  at("reader-folder").replaceChildren(element("bdi", {}, clean(`${result.folder}/${result.name}`)));
  body.textContent = "";
  body.className = result.kind;
  reading = { id: answer.id, result };
  reader.hidden = false;
  document.body.classList.add("reading");
  try {
    const told = await tell("open", { id: answer.id, index: result.index, how: "read" });
    if (reading?.result !== result) return;
    body.append(marked(told.text, told.marks));
    if (told.cut) body.append("\n\n… the rest is in the file itself.");
    if (!told.text) body.append(element("em", {}, "There is no text to show: open it in its application."));
    reader.scrollTop = 0;
    const first = body.querySelector("mark");
    if (first) reader.scrollTop = Math.max(0, first.offsetTop - reader.clientHeight / 3);
    reader.focus({ preventScroll: true });
  } catch (error) {
    problem(error);
  }
}

function close() {
  if (!reading) return;
  reading = null;
  reader.hidden = true;
  document.body.classList.remove("reading");
  tell("closed", {}).catch(() => {});
  query.focus();
}

function problem(error) {
  at("reader-problem").textContent = error.message;
  at("reader-problem").hidden = false;
}

at("close").addEventListener("click", close);

at("launch").addEventListener("click", () => {
  tell("open", { id: reading.id, index: reading.result.index, how: "application" }).catch(problem);
});

at("why").addEventListener("click", async () => {
  const box = at("reasons");
  box.hidden = !box.hidden;
  at("why").setAttribute("aria-expanded", String(!box.hidden));
  if (box.hidden) return;
  try {
    const { version, reasons } = await ask("why", { id: reading.id, index: reading.result.index });
    const largest = Math.max(...reasons.map((reason) => Math.abs(reason.adds)), 1e-9);
    const rows = reasons.slice(0, 10).map((reason) => {
      const bar = element("span", { class: reason.adds < 0 ? "meter minus" : "meter", "aria-hidden": "true" });
      bar.style.setProperty("--share", Math.abs(reason.adds) / largest);
      const adds = `${reason.adds < 0 ? "−" : "+"}${Math.abs(reason.adds).toFixed(2)}`;
      return element("li", { title: reason.says }, element("span", { class: "reason" }, reason.name), bar, element("span", { class: "adds" }, adds));
    });
    const words = rows.length
      ? `What adds to its score, compared with the other candidates (ranker: ${version}):`
      : "Nothing sets it apart from the other candidates.";
    box.replaceChildren(element("p", {}, words), element("ul", {}, ...rows));
  } catch (error) {
    problem(error);
  }
});

// Keyboard

query.addEventListener("input", () => search());

query.addEventListener("keydown", (event) => {
  const last = list.children.length - 1;
  if (event.key === "ArrowDown" && last >= 0) choose(active >= last ? 0 : active + 1);
  else if (event.key === "ArrowUp" && last >= 0) choose(active <= 0 ? last : active - 1);
  else if (event.key === "Enter" && last >= 0) open(found.results[Math.max(0, active)]);
  else return;
  event.preventDefault();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== query && !event.ctrlKey && !event.metaKey) {
    query.focus();
    query.select();
    event.preventDefault();
  }
  if (event.key === "Escape") {
    if (reading) close();
    else if (document.activeElement === query && query.value) {
      query.value = "";
      search();
    } else query.focus();
    event.preventDefault();
  }
});

// What is indexed

async function refresh() {
  try {
    known = await ask("status");
  } catch (error) {
    banner(error.message);
    return;
  }
  const total = Object.values(known.documents).reduce((sum, count) => sum + count, 0);
  const busy = known.indexing ? ` Reading ${counted(known.indexing[1] - known.indexing[0], "more file")}.` : "";
  at("welcome-text").textContent = known.folders.length
    ? `${counted(total, "document")} in ${counted(known.folders.length, "folder")}. What you type and open stays on this computer.${busy}`
    : "No folder is indexed yet. In a terminal, run: fultr search index FOLDER";
  if (!at("kinds").children.length) {
    for (const [kind, label] of Object.entries(known.kinds)) {
      if (!known.documents[kind]) continue;
      const short = { document: "Documents", note: "Notes", page: "Pages", mail: "Mail", code: "Code", data: "Data", other: "Other" }[kind];
      const chip = element("button", { type: "button", class: "chip", "aria-pressed": "false", title: label }, short);
      chip.dataset.kind = kind;
      chip.addEventListener("click", () => {
        chip.setAttribute("aria-pressed", String(chip.getAttribute("aria-pressed") !== "true"));
        search();
      });
      at("kinds").append(chip);
    }
  }
  banner(known.problem || (known.paused ? "Logging is paused: searches are not remembered." : known.indexing ? `Indexing: ${known.indexing[0].toLocaleString("en")} of ${counted(known.indexing[1], "file")}.` : ""));
}

function banner(text) {
  at("banner").textContent = text;
  at("banner").hidden = !text;
}

at("age").addEventListener("change", () => search());
welcome.hidden = false;
refresh();
setInterval(() => document.hidden || refresh(), 3000);
