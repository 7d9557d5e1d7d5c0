"use strict";

// Swaps the fragments of a page by their ids as the server sends them. Everything also works without it.

const byId = (id) => document.getElementById(id);
const two = (number) => String(number).padStart(2, "0");
let ahead = 0; // how far this machine's clock is ahead of the server's, in seconds

function stopwatch(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [hours, minutes, left] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
  return hours ? `${hours}:${two(minutes)}:${two(left)}` : `${minutes}:${two(left)}`;
}

function tick() {
  const now = Date.now() / 1000 - ahead;
  for (const clock of document.querySelectorAll("[data-since]")) {
    const text = stopwatch(now - Number(clock.dataset.since));
    if (clock.textContent !== text) clock.textContent = text;
  }
}

function localTimes(root) {
  for (const time of root.querySelectorAll("time")) {
    const at = new Date(time.dateTime);
    const day = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}`;
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
    time.textContent = time.className === "clock-time" ? `${clock}:${two(at.getSeconds())}` : `${day} ${clock}`;
    time.title = time.dateTime;
  }
}

function built(html) {
  const template = document.createElement("template");
  template.innerHTML = html.trim();
  const made = template.content.firstElementChild;
  localTimes(made);
  return made;
}

// A field that somebody fills in is not taken away; its fragment is swapped later.
function isEdited(element) {
  const focused = document.activeElement;
  if (focused && element.contains(focused) && focused.matches("textarea, select, input:not([type=hidden])")) return true;
  for (const field of element.querySelectorAll("textarea, input[type=checkbox]")) {
    if (field.type === "checkbox" ? field.checked !== field.defaultChecked : field.value !== field.defaultValue) return true;
  }
  return false;
}

const waiting = new Map();

function swap(id, html) {
  const old = byId(id);
  if (!old) return false;
  if (isEdited(old)) {
    waiting.set(id, html);
    return true;
  }
  waiting.delete(id);
  const made = built(html);
  for (const details of made.querySelectorAll("details[id]")) {
    const before = byId(details.id);
    if (before) details.open = before.open;
  }
  const focused = old.contains(document.activeElement) ? document.activeElement : null;
  const key = focused && (focused.id ? `#${CSS.escape(focused.id)}` : focused.matches("a[href]") ? `a[href="${CSS.escape(focused.getAttribute("href"))}"]` : "");
  const scrolled = [...old.querySelectorAll(".scroll, .timeline, pre")].map((box) => [box.scrollTop, box.scrollLeft]);
  old.replaceWith(made);
  [...made.querySelectorAll(".scroll, .timeline, pre")].forEach((box, place) => {
    if (scrolled[place]) [box.scrollTop, box.scrollLeft] = scrolled[place];
  });
  if (key) (made.matches(key) ? made : made.querySelector(key))?.focus({ preventScroll: true });
  return true;
}

function order(listId, ids, html) {
  const list = byId(listId);
  if (!list) return;
  const wanted = new Set(ids);
  let next = list.firstElementChild;
  for (const id of ids) {
    const item = byId(id) || (html[id] ? built(html[id]) : null);
    if (!item) continue;
    if (item === next) next = next.nextElementSibling;
    else list.insertBefore(item, next);
  }
  for (const child of [...list.children]) if (!wanted.has(child.id)) child.remove();
}

const MOST_LINES = 2000;

function matches(line) {
  const find = byId("find");
  const word = find ? find.value.toLowerCase() : "";
  return !word || line.textContent.toLowerCase().includes(word);
}

function appendLog(log) {
  const box = byId("log");
  if (!box) return;
  let lines = log.lines;
  const next = Number(box.dataset.next);
  if (log.whole && log.from + lines.length === next) return;
  if (log.whole || log.from !== next) box.replaceChildren();
  const made = document.createDocumentFragment();
  for (const line of lines) {
    const span = document.createElement("span");
    span.textContent = `${line}\n`;
    span.hidden = !matches(span);
    made.append(span);
  }
  box.append(made);
  while (box.childElementCount > MOST_LINES) box.firstElementChild.remove();
  box.dataset.next = log.from + lines.length;
  if (byId("follow")?.checked) box.scrollTop = box.scrollHeight;
}

function apply(message) {
  if (message.at) ahead = Date.now() / 1000 - message.at;
  const html = message.html || {};
  for (const [id, held] of [...waiting]) if (!(id in html)) swap(id, held);
  const later = [];
  for (const [id, text] of Object.entries(html)) if (!swap(id, text)) later.push(id);
  const lists = message.lists || {};
  for (const [id, ids] of Object.entries(lists)) order(id, ids, html);
  for (const id of later) if (byId(id)) swap(id, html[id]);
  if (message.log) appendLog(message.log);
  tick();
}

function say(text) {
  const place = byId("connection");
  place.textContent = text;
  place.hidden = !text;
}

let stream = null;
let lost = null;

function connected() {
  clearTimeout(lost);
  lost = null;
  say("");
}

function watch() {
  const address = document.body.dataset.events;
  if (!address || stream || document.hidden) return;
  stream = new EventSource(address);
  stream.onopen = connected;
  stream.onmessage = (event) => {
    connected();
    const message = JSON.parse(event.data);
    if (message.problem) say(message.problem);
    else apply(message);
  };
  stream.onerror = () => {
    // A reload or another page ends the connection, too: that is not worth a word.
    lost = lost || setTimeout(() => say("connection lost; trying again"), 1500);
    if (stream.readyState === EventSource.CLOSED) {
      stream = null;
      setTimeout(watch, 3000);
    }
  };
}

// A browser opens only a few connections to one server: hidden pages close theirs.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return watch();
  stream?.close();
  stream = null;
});
addEventListener("pagehide", () => stream?.close());
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload();
});

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
if (zone) byId("zone").textContent = `in your time zone, ${zone}`;
const log = byId("log");
if (log) {
  const follow = byId("follow");
  follow.parentElement.hidden = false;
  log.scrollTop = log.scrollHeight;
  follow.addEventListener("change", () => {
    if (follow.checked) log.scrollTop = log.scrollHeight;
  });
  log.addEventListener("scroll", () => {
    follow.checked = log.scrollTop + log.clientHeight >= log.scrollHeight - 30;
  });
  byId("find").addEventListener("input", () => {
    for (const line of log.children) line.hidden = !matches(line);
    if (follow.checked) log.scrollTop = log.scrollHeight;
  });
}
localTimes(document);
tick();
setInterval(tick, 1000);
watch();
