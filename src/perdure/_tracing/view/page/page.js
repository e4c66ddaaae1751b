"use strict";
// Text from the trace reaches the page through textContent alone: no string is ever parsed as HTML.
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b\u200e\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufeff]/g;

const show = (text) => String(text ?? "").replace(HIDDEN, (c) => "\u27e6U+" + c.codePointAt(0).toString(16).toUpperCase().padStart(4, "0") + "\u27e7");
function el(name, kind, ...children) {
  const made = document.createElement(name);
  if (kind) made.className = kind;
  for (const each of children) if (each !== null && each !== undefined && each !== "") made.append(each instanceof Node ? each : show(each));
  return made;
}
function svg(name, kind, attributes) {
  const made = document.createElementNS(SVG, name);
  if (kind) made.setAttribute("class", kind);
  for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
  return made;
}
const line = (text, most = 160) => { const flat = String(text ?? "").slice(0, most * 4).replace(/\s+/g, " ").trim(); return flat.length > most ? flat.slice(0, most - 1) + "\u2026" : flat; };
const count = (n) => Number(n || 0).toLocaleString("en-US");
const short = (n) => n >= 1e6 ? (n / 1e6).toFixed(n >= 1e7 ? 0 : 1) + "M" : n >= 1e4 ? (n / 1e3).toFixed(n >= 1e5 ? 0 : 1) + "k" : count(n);
const usd = (n) => n === null || n === undefined ? "" : "$" + (n >= 1 ? n.toFixed(2) : n.toFixed(4));
const percent = (n) => (100 * n).toFixed(n > 0 && n < .1 ? 1 : 0) + " %";
function time(s) {
  if (s === null || s === undefined || Number.isNaN(s)) return "";
  if (s < 1) return Math.round(s * 1000) + " ms";
  if (s < 60) return s.toFixed(2) + " s";
  if (s < 3600) return Math.floor(s / 60) + " min " + String(Math.floor(s % 60)).padStart(2, "0") + " s";
  return Math.floor(s / 3600) + " h " + String(Math.floor(s % 3600 / 60)).padStart(2, "0") + " min";
}
function pretty(text) { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } }

// -- one side: the trace as rows ------------------------------------------------------------------------------------
function unfold(side) {
  side.turns = []; side.rows = []; side.problems = 0;
  const add = (kind, depth, value, run, more) => { const row = { kind, depth, value, run, open: true, ...more }; side.rows.push(row); return row; };
  const note = (each, depth, run) => { if (each.bad) side.problems += 1; add("note", depth, each, run); };
  const walk = (run, depth, root) => {
    add("run", depth, run, root);
    run.notices.forEach((each) => note(each, depth + 1, root));
    for (const turn of run.turns) {
      turn.run = run; turn.place = side.turns.length;
      if (!turn.aside) side.turns.push(turn);
      turn.row = add("turn", depth + 1, turn, root);
      turn.notices.forEach((each) => note(each, depth + 2, root));
      for (const call of turn.calls) {
        call.turn = turn;
        if (call.status !== "ok" && call.status !== "open") side.problems += 1;
        call.row = add("call", depth + 2, call, root);
        call.runs.forEach((below) => walk(below, depth + 3, root));
      }
    }
    run.background.forEach((below) => walk(below, depth + 1, root));
  };
  side.runs.forEach((run) => walk(run, 0, run));
  side.calls = side.rows.filter((row) => row.kind === "call").length;
  side.retries = side.turns.reduce((sum, turn) => sum + turn.retries + turn.failovers, 0);
  side.total = side.runs.reduce((sum, run) => ({ input: sum.input + run.usage.input, output: sum.output + run.usage.output, cached: sum.cached + run.usage.cached,
    cost: sum.cost === null || run.cost === null ? null : sum.cost + run.cost, time: sum.time + run.t1 - run.t0 }), { input: 0, output: 0, cached: 0, cost: 0, time: 0 });
  return side;
}
const sides = DATA.sides.map(unfold);
const side = sides[0];
const other = sides[1];

// -- head -----------------------------------------------------------------------------------------------------------
function facts() {
  const box = el("section", "facts card");
  const fact = (value, name, kind) => { const made = el("div", "fact" + (kind ? " " + kind : ""), el("b", "", value || "\u2013"), el("span", "", name)); box.append(made); };
  const total = side.total;
  fact(count(side.runs.length), side.runs.length === 1 ? "run" : "runs");
  fact(count(side.turns.length), "turns");
  fact(count(side.calls), "tool calls");
  fact(time(total.time), "time in runs");
  fact(short(total.input), "tokens in");
  fact(short(total.output), "tokens out");
  fact(total.input ? percent(total.cached / total.input) : "", "of input cached");
  fact(usd(total.cost), "cost");
  fact(count(side.retries), "retries");
  fact(count(side.problems), "problems", side.problems ? "bad" : "");
  return box;
}

// -- charts ---------------------------------------------------------------------------------------------------------
const MOST_COLUMNS = 240;
function columns(turns, parts) {
  const size = Math.max(1, Math.ceil(turns.length / MOST_COLUMNS));
  const made = [];
  for (let place = 0; place < turns.length; place += size) {
    const group = turns.slice(place, place + size);
    const values = parts.map((part) => Math.max(...group.map(part.value)));
    made.push({ turn: group[0], last: group[group.length - 1], values, marks: group.flatMap((turn) => turn.changes) });
  }
  return made;
}
function legend(names) { return el("div", "legend", ...names.map(([kind, name]) => el("span", "", el("i", kind), name))); }
function frame(title, names) {
  const picture = svg("svg", "", { viewBox: "0 0 600 92", preserveAspectRatio: "none", role: "img", "aria-label": title });
  return [el("section", "chart card", el("div", "head", el("h2", "", title), legend(names)), picture), picture];
}
function grid(picture, most, format) {
  for (const part of [0, .5, 1]) {
    const y = 4 + 76 * (1 - part);
    picture.append(svg("line", "grid", { x1: 0, x2: 600, y1: y, y2: y, "vector-effect": "non-scaling-stroke" }));
  }
  picture.parentNode.querySelector(".head").append(el("span", "legend most", "highest " + format(most)));
}
function bars(title, parts, format, tell) {
  const [card, picture] = frame(title, parts.map((part) => ["f-" + part.kind, part.name]));
  const made = columns(side.turns, parts);
  const most = Math.max(1e-9, ...made.map((each) => each.values.reduce((a, b) => a + b, 0)));
  grid(picture, most, format);
  const step = 600 / Math.max(made.length, 12);
  made.forEach((each, place) => {
    let y = 80;
    const x = place * step, width = Math.max(step - Math.min(step * .18, 2), .6);
    each.values.forEach((value, index) => {
      const height = 76 * value / most;
      if (height > 0) { y -= height; picture.append(svg("rect", "f-" + parts[index].kind, { x: x.toFixed(2), y: y.toFixed(2), width: width.toFixed(2), height: height.toFixed(2) })); }
    });
    if (each.marks.length) picture.append(svg("rect", "f-warn", { x: x.toFixed(2), y: 83, width: Math.max(width, 2).toFixed(2), height: 5 }));
    const hit = svg("rect", "hit", { x: x.toFixed(2), y: 0, width: step.toFixed(2), height: 92 });
    const name = svg("title"); name.textContent = show(tell(each)); hit.append(name);
    hit.addEventListener("click", () => choose(each.turn.row));
    picture.append(hit);
  });
  return card;
}
const label = (each) => each.turn === each.last ? "turn " + each.turn.n : "turns " + each.turn.n + " to " + each.last.n;
function contextChart() {
  const parts = [
    { kind: "cached", name: "cache read", value: (turn) => turn.usage.cached },
    { kind: "written", name: "cache write", value: (turn) => turn.usage.written },
    { kind: "fresh", name: "not cached", value: (turn) => Math.max(turn.ctx - turn.usage.cached - turn.usage.written, 0) },
    { kind: "output", name: "output", value: (turn) => turn.usage.output },
  ];
  const card = bars("Context and prompt cache", parts, (n) => short(n) + " tokens", (each) =>
    label(each) + ": " + parts.map((part, index) => count(each.values[index]) + " " + part.name).join(", ") + (each.marks.length ? "; changed: " + each.marks.join(", ") : ""));
  card.querySelector(".legend").append(el("span", "", el("i", "f-warn"), "prefix changed"));
  return card;
}
function timeChart() {
  const parts = [
    { kind: "wait", name: "to first word", value: (turn) => turn.tf ? Math.max(turn.tf - turn.t0, 0) : 0 },
    { kind: "model", name: "model", value: (turn) => turn.tr ? Math.max(turn.tr - (turn.tf || turn.t0), 0) : 0 },
    { kind: "tool", name: "tools", value: (turn) => turn.tr ? Math.max(turn.t1 - turn.tr, 0) : 0 },
  ];
  return bars("Time by turn", parts, time, (each) => label(each) + ": " + parts.map((part, index) => time(each.values[index]) + " " + part.name).join(", ") + (each.turn.cost !== null ? ", " + usd(each.turn.cost) : ""));
}
function costChart() {
  if (!side.turns.some((turn) => turn.cost)) return null;
  const parts = [{ kind: "fresh", name: "cost", value: (turn) => turn.cost || 0 }];
  return bars("Cost by request", parts, usd, (each) => label(each) + ": " + usd(each.values[0]));
}
function lineChart(title, value, format) {
  const [card, picture] = frame(title, [["i-a", "A"], ["i-b", "B"]]);
  const most = Math.max(1e-9, ...sides.flatMap((each) => each.turns.map(value)));
  const longest = Math.max(2, ...sides.map((each) => each.turns.length));
  grid(picture, most, format);
  sides.forEach((each, index) => {
    const points = each.turns.map((turn, place) => (600 * place / (longest - 1)).toFixed(2) + "," + (80 - 76 * value(turn) / most).toFixed(2));
    picture.append(svg("polyline", index ? "l-b" : "l-a", { points: points.join(" "), "vector-effect": "non-scaling-stroke" }));
  });
  return card;
}
const running = (part) => { const sums = new Map(); return (turn) => { if (!sums.has(turn)) { for (const each of sides) { let sum = 0; for (const one of each.turns) { sum += part(one) || 0; sums.set(one, sum); } } } return sums.get(turn) || 0; }; };

// -- waterfall: rows of one height, drawn only where they are seen --------------------------------------------------
const ROW = 28;
let chosen = null, visible = [], needle = "";
const waterfall = { box: el("div", "scroll"), sizer: el("div"), drawn: new Map() };
function refreshRows() {
  const words = needle.toLowerCase();
  visible = [];
  let closed = Infinity;
  for (const row of side.rows) {
    if (row.depth > closed) continue;
    closed = row.open || words ? Infinity : row.depth;
    if (!words || rowText(row).toLowerCase().includes(words)) visible.push(row);
  }
  for (const each of waterfall.drawn.values()) each.remove();
  waterfall.drawn.clear();
  waterfall.sizer.style.height = (visible.length + 1) * ROW + "px";
  drawRows();
}
function rowText(row) {
  const value = row.value;
  if (row.kind === "run") return [value.agent, value.path, value.status, value.prompt].join(" ");
  if (row.kind === "turn") return "turn " + value.n + " " + value.model + " " + replyText(value);
  if (row.kind === "call") return value.name + " " + value.args + " " + value.status + " " + value.result;
  return value.kind + " " + value.text;
}
function drawRows() {
  const from = Math.max(0, Math.floor(waterfall.box.scrollTop / ROW) - 12);
  const to = Math.min(visible.length, from + Math.ceil((waterfall.box.clientHeight || 600) / ROW) + 26);
  for (const [place, each] of waterfall.drawn) if (place < from || place >= to) { each.remove(); waterfall.drawn.delete(place); }
  for (let place = from; place < to; place += 1) if (!waterfall.drawn.has(place)) {
    const made = drawRow(visible[place], place);
    waterfall.drawn.set(place, made); waterfall.sizer.append(made);
  }
}
function bar(run, from, to, kind) {
  const span = Math.max(run.t1 - run.t0, 1e-6), made = el("i", "f-" + kind);
  made.style.left = (100 * Math.min(Math.max((from - run.t0) / span, 0), 1)).toFixed(3) + "%";
  made.style.width = (100 * Math.max((to - from) / span, 0)).toFixed(3) + "%";
  return made;
}
function drawRow(row, place) {
  const value = row.value, name = el("span", "name"), track = el("div", "track");
  name.style.paddingLeft = row.depth * 14 + "px";
  const below = side.rows[side.rows.indexOf(row) + 1];
  const twist = el("span", "twist", below && below.depth > row.depth ? (row.open ? "\u25be" : "\u25b8") : "");
  name.append(twist);
  const cells = [name];
  const number = (text) => cells.push(el("span", "num", text));
  if (row.kind === "run") {
    const good = value.status === "done" || value.status === "stopped";
    name.append(el("b", "", value.path || value.agent || "run"), " ", el("span", good ? "chip good" : value.status === "open" || value.status === "waiting" ? "chip warn" : "chip bad", value.status), el("i", "", line(value.prompt, 90)));
    number(time(value.t1 - value.t0)); number(tokens(value.usage)); number(usd(value.cost));
    track.append(bar(row.run, value.t0, value.t1, "run"));
  } else if (row.kind === "turn") {
    name.append(el("span", "mark f-model"), el("b", "", (value.aside ? "aside " : "turn ") + value.n), " ", el("i", "", line(replyText(value) || value.calls.map((call) => call.name).join(", "), 120)));
    number(value.tr ? time(value.tr - value.t0) : ""); number(tokens(value.usage)); number(usd(value.cost));
    if (value.tf) track.append(bar(row.run, value.t0, value.tf, "wait"));
    if (value.tr) track.append(bar(row.run, value.tf || value.t0, value.tr, "model"));
  } else if (row.kind === "call") {
    const bad = value.status !== "ok" && value.status !== "open";
    name.append(el("span", "mark " + (bad ? "f-bad" : "f-tool")), el("b", "", value.name), " ", bad ? el("span", "chip bad", value.status) : "", el("i", "", line(value.args, 120)));
    number(value.t1 ? time(value.dur) : ""); number(""); number("");
    if (value.t0 && value.t1) track.append(bar(row.run, value.t0, value.t1, bad ? "bad" : "tool"));
  } else {
    name.append(el("span", value.bad ? "k-problem" : "k-note", value.kind.replaceAll("_", " ") + " \u00b7 " + line(value.text, 160)));
    number(""); number(""); number("");
    track.append(bar(row.run, value.t, value.t, value.bad ? "bad" : "warn"));
  }
  const made = el("div", "row" + (row === chosen ? " on" : ""), ...cells, track);
  made.style.top = (place + 1) * ROW + "px";
  made.title = show(line(rowText(row), 300));
  made.addEventListener("click", (event) => { if (event.target === twist && twist.textContent) { row.open = !row.open; refreshRows(); } else choose(row); });
  return made;
}
const tokens = (usage) => usage.input + usage.output ? short(usage.input) + " \u2192 " + short(usage.output) : "";
function waterfallPane() {
  const head = el("div", "row head", el("span", "", "what"), el("span", "num", "time"), el("span", "num", "tokens"), el("span", "num", "cost"), el("span", "", "when"));
  waterfall.sizer.append(head);
  waterfall.box.append(waterfall.sizer);
  waterfall.box.tabIndex = 0;
  waterfall.box.addEventListener("scroll", drawRows, { passive: true });
  waterfall.box.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15 }[event.key];
    if (!step || !visible.length) return;
    event.preventDefault();
    choose(visible[Math.min(Math.max(visible.indexOf(chosen) + step, 0), visible.length - 1)]);
  });
  new ResizeObserver(drawRows).observe(waterfall.box);
  refreshRows();
  return waterfall.box;
}
function choose(row) {
  chosen = row;
  if (current !== "waterfall") openTab("waterfall");
  const place = visible.indexOf(row), top = place * ROW;
  if (place >= 0 && (top < waterfall.box.scrollTop || top > waterfall.box.scrollTop + waterfall.box.clientHeight - 3 * ROW)) waterfall.box.scrollTop = Math.max(0, top - waterfall.box.clientHeight / 2);
  drawRows();
  for (const [at, each] of waterfall.drawn) each.classList.toggle("on", visible[at] === row);
  drawDetail(row);
}

// -- details --------------------------------------------------------------------------------------------------------
const detail = el("div", "scroll");
const box = (text) => el("div", "box", el("pre", "", text));
function pairs(values) {
  const list = el("dl", "pairs");
  for (const [name, value] of values) if (value !== "" && value !== null && value !== undefined) list.append(el("dt", "", name), el("dd", "", value));
  return list;
}
function section(title, ...content) { return content.some(Boolean) ? [el("h4", "", title), ...content] : []; }
function drawDetail(row) {
  const body = el("div", "body detail"), value = row.value;
  if (row.kind === "run") runDetail(body, value); else if (row.kind === "turn") turnDetail(body, value); else if (row.kind === "call") callDetail(body, value);
  else body.append(el("h3", "", value.kind.replaceAll("_", " ")), el("div", "sub", "after " + time(value.t)), box(value.text));
  detail.replaceChildren(body); detail.scrollTop = 0;
}
function usagePairs(value) {
  const usage = value.usage;
  return [["input", count(usage.input) + " tokens"], ["read from cache", usage.cached ? count(usage.cached) + " (" + percent(usage.cached / Math.max(usage.input, 1)) + ")" : "0"],
    ["written to cache", usage.written ? count(usage.written) : ""], ["output", count(usage.output) + " tokens"], ["of it thinking", usage.thinking ? count(usage.thinking) : ""],
    ["counted", usage.precision === "exact" ? "" : usage.precision], ["cost", usd(value.cost)]];
}
function runDetail(body, run) {
  body.append(el("h3", "", run.path || run.agent || "run"), el("div", "sub", "run " + run.id));
  body.append(pairs([["status", run.status + (run.reason && run.reason !== run.status ? " (" + run.reason + ")" : "")], ["error", run.error], ["began", new Date((side.started_at + run.t0) * 1000).toLocaleString()],
    ["took", time(run.t1 - run.t0)], ["turns", count(run.turns.length)], ["engine", run.engine], ...usagePairs(run)]));
  body.append(...section("Prompt", run.prompt && box(run.prompt)));
  body.append(...section("Instructions", !run.path && side.meta.system && box(side.meta.system)));
  if (!run.path && side.meta.tools.length) body.append(...section("Tools", ...side.meta.tools.map((each) => el("div", "item", el("span", "why", each.name), el("span", "txt", line(each.description, 200))))));
}
function turnDetail(body, turn) {
  body.append(el("h3", "", (turn.aside ? "Aside request " : "Turn ") + turn.n), el("div", "sub", [turn.provider, turn.model].filter(Boolean).join(": ")));
  body.append(pairs([["asked after", time(turn.t0 - turn.run.t0)], ["first word", turn.tf ? "after " + time(turn.tf - turn.t0) : ""], ["reply", turn.tr ? "after " + time(turn.tr - turn.t0) : "none"],
    ["attempts", turn.attempts > 1 ? count(turn.attempts) : ""], ["retries", turn.retries ? count(turn.retries) : ""], ["stopped because", turn.stop], ["messages sent", count(turn.messages)],
    ["cache", turn.changes.length ? "missed: " + turn.changes.join(", ") : ""], ...usagePairs(turn), ["settings", Object.keys(turn.settings).length ? JSON.stringify(turn.settings) : ""]]));
  body.append(...section("Entered the context", ...turn.entered.map(enteredItem)));
  if (turn.added.length || turn.removed.length) body.append(...section("Tools changed", el("div", "", ...turn.added.map((name) => el("span", "chip good", "+" + name)), ...turn.removed.map((name) => el("span", "chip bad", "-" + name)))));
  body.append(...section("Reply", turn.reply.length && message("assistant", "model", turn.reply, "")));
  body.append(...section("Calls", ...turn.calls.map((call) => el("div", "item", el("span", "why mono", call.name), el("span", "txt mono", line(call.args, 120)), el("span", "n", call.status + (call.t1 ? " \u00b7 " + time(call.dur) : ""))))));
  body.append(...section("Also", ...turn.notices.map((each) => el("div", each.bad ? "k-problem" : "k-note", each.kind.replaceAll("_", " ") + ": " + each.text))));
}
function callDetail(body, call) {
  body.append(el("h3", "mono", call.name), el("div", "sub", "call " + call.id));
  body.append(pairs([["status", call.status], ["took", call.t1 ? time(call.dur) : ""], ["effect", call.effect], ["permission", call.permission], ["attempts", call.attempts > 1 ? count(call.attempts) : ""]]));
  body.append(...section("Arguments", box(pretty(call.args))), ...section("Result", call.result && box(pretty(call.result))));
  if (call.progress_count) body.append(...section("Progress: " + count(call.progress_count) + " reports, the last ones", box(call.progress.map((each) => typeof each === "string" ? each : JSON.stringify(each)).join("\n"))));
}
function enteredText(item, turn) {
  if (item.call) { const found = callById.get(item.call); return found ? found.result : item.text; }
  return item.text;
}
function enteredItem(item) { return el("div", "item", el("span", "why", item.why), el("span", "txt", line(enteredText(item), 160)), el("span", "n", short(item.n) + " chars")); }
const callById = new Map();
for (const each of sides) for (const row of each.rows) if (row.kind === "call") callById.set(row.value.id, row.value);

// -- messages and context: drawn in pieces while they are scrolled to -----------------------------------------------
function pieces(list, draw, size = 40) {
  const scroll = el("div", "scroll"), body = el("div", "body"), end = el("div");
  let at = 0;
  const more = () => { for (const each of list.slice(at, at + size)) { const made = draw(each); if (made) body.insertBefore(made, end); } at += size; if (at >= list.length) watcher.disconnect(); };
  body.append(end); scroll.append(body);
  const watcher = new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) more(); }, { root: scroll, rootMargin: "800px" });
  if (list.length) { more(); if (at < list.length) watcher.observe(end); } else body.append(el("div", "none", "nothing here"));
  return scroll;
}
const replyText = (turn) => turn.reply.filter((part) => part.type === "text").map((part) => part.text).join("");
function message(role, by, parts, at, bad) {
  const made = el("div", "msg " + role + (bad ? " bad" : ""), el("div", "by", el("span", "", by), el("span", "", at)));
  for (const part of parts) {
    if (part.type === "text") made.append(el("div", "clip", el("pre", "", part.text)));
    else if (part.type === "thinking") made.append(el("div", "clip", el("pre", "think", part.text || "(hidden thinking)")));
    else if (part.type === "tool_call") made.append(el("div", "call", part.name + " " + part.arguments));
    else made.append(el("div", "chip", part.type + (part.text ? ": " + part.text : "")));
  }
  return made;
}
function messagesPane() {
  const list = [];
  for (const turn of side.turns) {
    for (const item of turn.entered) if (item.why !== "reply" && !item.call) list.push({ t: item.t, draw: () => message(item.role, item.why + (turn.path ? " \u00b7 " + turn.path : ""), [{ type: "text", text: item.text }], time(item.t)) });
    if (turn.reply.length) list.push({ t: turn.tr, draw: () => message("assistant", (turn.model || "model") + " \u00b7 turn " + turn.n + (turn.path ? " \u00b7 " + turn.path : ""), turn.reply, tokens(turn.usage) + "  " + time(turn.tr)) });
    for (const call of turn.calls) if (call.t1 || call.result) list.push({ t: call.t1, draw: () => message("tool", call.name + " \u00b7 " + call.status, [{ type: "text", text: call.result }], time(call.dur), call.status !== "ok") });
  }
  return pieces(list, (each) => each.draw());
}
function contextPane() {
  const most = Math.max(1, ...side.turns.map((turn) => turn.ctx));
  return pieces(side.turns, (turn) => {
    const part = (value, kind) => { const made = el("i", "f-" + kind); made.style.width = (100 * value / most).toFixed(2) + "%"; return made; };
    const changes = turn.changes.map((cause) => el("span", "chip warn", "cache missed: " + cause));
    const tools = [...turn.added.map((name) => el("span", "chip good", "tool +" + name)), ...turn.removed.map((name) => el("span", "chip bad", "tool -" + name))];
    const fresh = Math.max(turn.ctx - turn.usage.cached - turn.usage.written, 0);
    const made = el("div", "step", el("div", "at", el("b", "", "turn " + turn.n), time(turn.t0), turn.path ? el("div", "", turn.path) : ""),
      el("div", "", ...changes, ...tools, turn.system ? el("span", "chip", "instructions: " + short(turn.system) + " chars") : "", ...turn.entered.map(enteredItem)),
      el("div", "ctx", short(turn.ctx) + " tokens" + (turn.usage.cached ? ", " + percent(turn.usage.cached / Math.max(turn.ctx, 1)) + " cached" : ""), el("div", "bar", part(turn.usage.cached, "cached"), part(turn.usage.written, "written"), part(fresh, "fresh"))));
    made.addEventListener("click", () => choose(turn.row));
    return made;
  });
}
function wirePane() {
  return pieces(side.raw, (each) => el("div", "msg " + (each.status >= 400 || !each.status ? "bad" : "system"), el("div", "by", el("span", "", each.method + " " + each.url + (each.status ? " \u2192 " + each.status : "")), el("span", "", time(each.t))),
    el("h4", "", "curl"), box(each.curl), ...(each.lines.length ? [el("h4", "", count(each.count) + " lines of the response" + (each.count > each.lines.length ? ", the first " + each.lines.length : "")), box(each.lines.join("\n"))] : [])), 10);
}

// -- two traces side by side ----------------------------------------------------------------------------------------
function comparePane() {
  const scroll = el("div", "scroll"), body = el("div", "body"), table = el("table");
  table.append(el("tr", "", el("th", "", ""), el("th", "num", "A"), el("th", "num", "B"), el("th", "num", "difference")));
  const row = (name, value, format) => {
    const [a, b] = sides.map(value), gap = a === null || b === null ? null : b - a;
    const told = gap === null ? "" : (gap > 0 ? "+" : gap < 0 ? "\u2212" : "") + format(Math.abs(gap)) + (a ? " (" + (gap > 0 ? "+" : gap < 0 ? "\u2212" : "") + percent(Math.abs(gap / a)) + ")" : "");
    table.append(el("tr", "", el("td", "", name), el("td", "num", format(a)), el("td", "num", format(b)), el("td", "num " + (gap > 0 ? "worse" : gap < 0 ? "better" : ""), told)));
  };
  const text = (name, value) => table.append(el("tr", "", el("td", "", name), ...sides.map((each) => el("td", "num", value(each))), el("td")));
  text("session", (each) => each.meta.session_id); text("model", (each) => each.meta.model); text("ended", (each) => each.runs.map((run) => run.status).slice(-3).join(", "));
  row("time in runs", (each) => each.total.time, time); row("turns", (each) => each.turns.length, count); row("tool calls", (each) => each.calls, count);
  row("tokens in", (each) => each.total.input, count); row("tokens out", (each) => each.total.output, count); row("not cached", (each) => each.total.input - each.total.cached, count);
  row("cost", (each) => each.total.cost, (n) => usd(n) || "?"); row("retries", (each) => each.retries, count); row("problems", (each) => each.problems, count);
  const charts = el("div", "charts");
  charts.append(lineChart("Context by request", (turn) => turn.ctx, (n) => short(n) + " tokens"), lineChart("Cost so far", running((turn) => turn.cost), usd), lineChart("Time so far", running((turn) => turn.t1 - turn.t0), time));
  body.append(table, el("h4", "", ""), charts, el("h4", "", ""));
  const pairsOf = Array.from({ length: Math.max(side.turns.length, other.turns.length) }, (_, place) => [side.turns[place], other.turns[place]]);
  const makeTable = () => { const made = el("table", "sides"), group = el("colgroup"); group.append(el("col", "n"), el("col"), el("col")); made.append(group, el("tr", "", el("th", "", "turn"), el("th", "", "A: " + side.meta.session_id), el("th", "", "B: " + other.meta.session_id))); return made; };
  const list = makeTable(); body.append(list); scroll.append(body);
  const calls = (turn) => turn ? turn.calls.map((call) => call.name + " " + call.args).join("\n") : null;
  const cell = (turn) => turn ? el("td", "", el("div", "", el("span", "chip", tokens(turn.usage) || "no tokens"), el("span", "chip", time(turn.t1 - turn.t0)), turn.cost !== null ? el("span", "chip", usd(turn.cost)) : "", turn.retries ? el("span", "chip bad", turn.retries + (turn.retries === 1 ? " retry" : " retries")) : ""),
    ...turn.calls.map((call) => el("div", "mono" + (call.status === "ok" ? "" : " k-problem"), line(call.name + " " + call.args, 140))), el("div", "reply", line(replyText(turn), 240))) : el("td", "none", "\u2013");
  let at = 0;
  const end = el("div"); body.append(end);
  const more = () => { pairsOf.slice(at, at + 40).forEach(([a, b], index) => list.append(el("tr", a && b && calls(a) === calls(b) && (a.calls.length || replyText(a) === replyText(b)) ? "" : "differs", el("td", "", String(at + index + 1)), cell(a), cell(b)))); at += 40; if (at >= pairsOf.length) watcher.disconnect(); };
  const watcher = new IntersectionObserver((seen) => { if (seen.some((each) => each.isIntersecting)) more(); }, { root: scroll, rootMargin: "600px" });
  more(); if (at < pairsOf.length) watcher.observe(end);
  return scroll;
}

// -- the page -------------------------------------------------------------------------------------------------------
let current = "";
const main = el("main"), left = el("section", "pane card"), right = el("section", "pane card"), place = el("div", "pane"), tabs = el("div", "tabs");
const PANES = { ...(other ? { compare: ["Compare", comparePane] } : {}), waterfall: ["Waterfall", waterfallPane], messages: ["Messages", messagesPane], context: ["Context", contextPane], ...(side.raw.length ? { wire: ["Wire", wirePane] } : {}) };
const made = {};
function openTab(name) {
  current = name;
  for (const each of tabs.querySelectorAll("button")) each.setAttribute("aria-selected", String(each.dataset.name === name));
  const isWide = name === "compare";
  main.classList.toggle("wide", isWide); right.hidden = isWide; right.style.display = isWide ? "none" : "";
  place.replaceChildren(made[name] || (made[name] = PANES[name][1]()));
  if (name === "waterfall") drawRows();
}
function start() {
  const meta = side.meta, title = el("h1", "", line((side.runs[0] && side.runs[0].prompt) || "session " + meta.session_id, 90));
  const theme = el("button", "quiet", "light / dark");
  theme.type = "button";
  theme.addEventListener("click", () => { const root = document.documentElement, dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches; root.dataset.theme = dark ? "light" : "dark"; });
  const who = ["session " + meta.session_id, [meta.provider, meta.model].filter(Boolean).join(": "), side.started_at ? new Date(side.started_at * 1000).toLocaleString() : ""].filter(Boolean).join("  \u00b7  ");
  document.title = show("trace \u00b7 " + line((side.runs[0] && side.runs[0].prompt) || meta.session_id, 60));
  document.body.append(el("header", "", title, el("span", "who", who), theme), facts());
  if (side.missing) document.body.append(el("div", "k-problem", count(side.missing) + " entries are missing: the trace reached its limit"));
  const charts = el("section", "charts"); charts.append(...[contextChart(), timeChart(), costChart()].filter(Boolean));
  if (!other) document.body.append(charts);
  tabs.setAttribute("role", "tablist");
  for (const [name, [text]] of Object.entries(PANES)) { const each = el("button", "", text); each.type = "button"; each.dataset.name = name; each.setAttribute("role", "tab"); each.addEventListener("click", () => openTab(name)); tabs.append(each); }
  const filter = el("input"); filter.type = "search"; filter.placeholder = "filter the waterfall"; filter.setAttribute("aria-label", "filter");
  filter.addEventListener("input", () => { needle = filter.value; openTab("waterfall"); refreshRows(); });
  tabs.append(filter);
  left.append(tabs, place); place.style.flex = "1";
  right.append(detail); main.append(left, right); document.body.append(main);
  openTab("waterfall");
  const first = side.rows.find((row) => row.kind === "turn") || side.rows[0];
  if (first) { chosen = first; drawDetail(first); refreshRows(); }
  if (other) openTab("compare");
  document.documentElement.dataset.ready = "yes";
}
start();
