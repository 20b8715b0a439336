// The privacy page: what is logged, what left, and the means to forget.

import { ago, ask, clean, counted, element, exactly, tell } from "./shared.js";

const at = (id) => document.getElementById(id);

async function refresh() {
  try {
    show(await ask("privacy"));
    at("problem").hidden = true;
  } catch (error) {
    fail(error);
  }
}

function fail(error) {
  at("problem").textContent = error.message;
  at("problem").hidden = false;
}

function show(told) {
  const refused = told.refused ? ` ${counted(told.refused, "request")} got no answer.` : "";
  at("left-words").textContent = told.answered
    ? `${counted(told.answered, "answer")} in all, ${told.answered_today.toLocaleString("en")} in the last 24 hours: sums of numbers made from your clicks, never searches, files or names.${refused}`
    : `Nothing has left this computer.${refused}`;
  at("history").hidden = !told.history.length;
  at("history").tBodies[0].replaceChildren(...told.history.map(entry));

  const { name, made, epsilon, delta } = told.ranker;
  const origin = name === "default"
    ? "The default: weights set by hand that come with the program, the same for everybody."
    : `Version ${name}${made ? `, made ${exactly(Date.parse(made) / 1000)}` : ""}, which came through your node: it takes only what your federation has signed.`;
  const spent = epsilon === null
    ? told.answered ? " It comes without differential privacy: there is no bound (epsilon) on what your answers reveal." : ""
    : ` Privacy spent so far, per device: epsilon ${epsilon.toFixed(3)}${delta ? `, delta ${delta}` : ""}, as its server says.`;
  at("ranker").textContent = origin + spent;

  own(told.personal);
  at("exploration").textContent = told.exploration
    ? `On: in ${Math.round(told.exploration * 100)} of 100 searches neighbouring results are swapped, which shows how much people look at the top only because it is the top.`
    : "Off. If it is on, neighbouring results are swapped in 10 of 100 searches: that shows how much people look at the top only because it is the top, and helps to rank better for everybody in your federation. It makes your own results slightly worse.";
  toggle("exploration", Boolean(told.exploration));

  const size = told.bytes < 1e6 ? `${Math.ceil(told.bytes / 1000)} kB` : `${(told.bytes / 1e6).toFixed(1)} MB`;
  at("logged-words").textContent = told.impressions
    ? `${told.impressions === 1 ? "One search" : `${told.impressions.toLocaleString("en")} searches`} with ${counted(told.clicks, "opened result")}, ${size}, in ${told.folder}, which only you can read.`
    : "Nothing is logged.";
  at("pause").textContent = told.paused ? "Resume logging" : "Pause logging";
  at("pause").setAttribute("aria-pressed", String(told.paused));
  at("forget").disabled = !told.impressions && !told.opens;
  at("searches").replaceChildren(...told.latest.map(search));
}

function own({ on, needed, layer }) {
  const about = "Weights of your own on top of the ranker, learnt here from what you open. They are never sent to anybody.";
  const measured = layer && `${layer.difference < 0 ? "−" : "+"}${Math.abs(layer.difference).toFixed(3)} ± ${layer.error.toFixed(3)}`;
  const state = !on ? "Switched off."
    : !layer || layer.queries < needed ? `So far there is too little to learn from: ${layer ? layer.queries : 0} of ${needed} different searches with an opened result.`
    : layer.used ? `In use: in searches that they were not learnt from, they put what you open higher (${measured}).`
    : `Not in use: in searches that they were not learnt from, they are not surely better (${measured}).`;
  at("personal").textContent = `${about} ${state}`;
  const weights = Object.entries(on && layer?.used ? layer.weights : {}).sort((a, b) => Math.abs(b[1]) - Math.abs(a[1])).slice(0, 8);
  at("weights").replaceChildren(...weights.map(([name, weight]) => element("li", {}, `${name} ${weight < 0 ? "−" : "+"}${Math.abs(weight).toFixed(2)}`)));
  toggle("personal", on);
}

function toggle(name, on) {
  const button = at(`${name}-switch`);
  button.textContent = on ? "Switch off" : "Switch on";
  button.setAttribute("aria-label", `${on ? "Switch off" : "Switch on"}: ${name === "personal" ? "what is learnt for you alone" : "exploration"}`);
  button.dataset.on = String(on);
}

for (const name of ["personal", "exploration"]) {
  at(`${name}-switch`).addEventListener("click", (event) => act("choose", { name, on: event.currentTarget.dataset.on !== "true" }));
}

function entry(one) {
  const outcome = one.outcome === "answered"
    ? `Sent ${counted(one.numbers, "number")} (${one.asked.join(", ") || "nothing"}), round ${one.round}`
    : one.outcome === "revealed" ? clean(one.reason) : `Nothing was sent: ${clean(one.reason)}`;
  const from = one.outcome === "answered" ? `${counted(one.clicks, "click")}` : "";
  return element("tr", {}, element("td", {}, exactly(one.time)), element("td", {}, outcome), element("td", {}, from));
}

function search(one) {
  const text = one.text === null ? "(words not kept)" : clean(one.text);
  const opened = one.clicks.length ? `opened ${one.clicks.map((rank) => `no. ${rank}`).join(", ")}` : "nothing opened";
  const words = element("span", { class: "words" },
    element("span", { class: "name" }, element("bdi", {}, text)),
    element("span", { class: "where" }, `${ago(one.time)} · ${opened} · ranker: ${one.version}`));
  const item = element("li", {}, words);
  if (one.text !== null) {
    const button = element("button", { type: "button", class: "button small", "aria-label": `Forget ${text}` }, "Forget");
    button.addEventListener("click", () => act("forget", { query: one.text }));
    item.append(button);
  }
  return item;
}

async function act(name, what) {
  try {
    const told = await tell(name, what);
    at("done").textContent = "gone" in told ? "Forgotten, beyond recovery."
      : !("paused" in told) ? "" : told.paused ? "Nothing is logged from now on." : "Logging again.";
  } catch (error) {
    fail(error);
  }
  await refresh();
}

at("pause").addEventListener("click", () => act("pause", { paused: at("pause").getAttribute("aria-pressed") !== "true" }));

at("forget").addEventListener("click", () => {
  if (confirm("Forget all searches and what you opened? This cannot be undone.")) act("forget", { all: true });
});

refresh();
