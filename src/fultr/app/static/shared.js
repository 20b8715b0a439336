// What both pages use. Everything from files and from the log is put on the page as text, never as markup.

export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Signs that are not printed, or that change the direction of what follows, must not make a name look like another.
export function clean(text) {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, "\ufffd");
}

// A text with marked pieces. Places count characters, as Python does, not units of UTF-16.
export function marked(text, marks) {
  const signs = Array.from(text);
  const made = document.createDocumentFragment();
  let at = 0;
  for (const [start, end] of marks) {
    if (start < at) continue;
    made.append(signs.slice(at, start).join(""), element("mark", {}, signs.slice(start, end).join("")));
    at = end;
  }
  made.append(signs.slice(at).join(""));
  return made;
}

export async function ask(name, parameters = {}, signal = undefined) {
  return answer(await fetch(`api/${name}?${new URLSearchParams(parameters)}`, { signal }));
}

export async function tell(name, what, keepalive = false) {
  const headers = { "Content-Type": "application/json" };
  return answer(await fetch(`api/${name}`, { method: "POST", headers, body: JSON.stringify(what), keepalive }));
}

async function answer(response) {
  const said = await response.json().catch(() => ({ error: "The program behind this page has ended." }));
  if (!response.ok) throw new Error(said.error ?? `The program answered ${response.status}.`);
  return said;
}

export const counted = (count, what) => `${count.toLocaleString("en")} ${what}${count === 1 ? "" : "s"}`;

const DAY = 86400;
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });

export function ago(seconds) {
  const passed = Date.now() / 1000 - seconds;
  if (passed < 90) return "just now";
  if (passed < 3600) return relative.format(-Math.round(passed / 60), "minute");
  if (passed < DAY) return relative.format(-Math.round(passed / 3600), "hour");
  if (passed < 14 * DAY) return relative.format(-Math.round(passed / DAY), "day");
  const year = passed > 300 * DAY ? "numeric" : undefined;
  return new Date(seconds * 1000).toLocaleDateString("en", { day: "numeric", month: "short", year });
}

export const exactly = (seconds) => new Date(seconds * 1000).toLocaleString("en", { dateStyle: "medium", timeStyle: "short" });
