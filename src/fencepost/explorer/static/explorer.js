// The page of the explorer. Everything about the protocol comes from the server. This script puts it on the page, and turns keys and
// clicks into requests. One request runs at a time. Of several waiting requests for a state, only the last one is sent.

const $ = id => document.getElementById(id);
const make = (tag, { text, html, ...attributes } = {}, ...children) => {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) if (value !== undefined && value !== false) made.setAttribute(name, value === true ? "" : value);
  if (text !== undefined) made.textContent = text;
  if (html !== undefined) made.innerHTML = html;
  made.append(...children.filter(child => child));
  return made;
};

let session = "";
let shown = null;          // the last view from the server
let items = [];            // the history of the current line
let offers = [];           // the steps that can be taken, in the order shown
let chosen = 0;
let drawn = "";            // the key of the diagram on the page
let watches = [];
let stored = "";           // the key of the watches in local storage
let answered = null;       // the state where a search ended, while its result is shown

// -- requests ---------------------------------------------------------------------------------------------------------

let line = Promise.resolve();
let latest = 0;

// A page that was kept as a file has the answers, and asks nobody.
const answers = $("answers") && await unpacked($("answers").textContent);

async function unpacked(text) {
  const packed = new Blob([Uint8Array.from(atob(text), letter => letter.charCodeAt(0))]);
  return new Response(packed.stream().pipeThrough(new DecompressionStream("deflate"))).json();
}

function answer(name, { at, move, path }) {
  if (name === "about") return { session: "", ...answers.about };
  const found = name === "take" ? answers.steps[`${at}:${move}`] : name === "look" ? at : named(path) ?? answers.first;
  const view = answers.views[found];
  if (!view) throw new Error(`This page ends here. To go on, install Fencepost and run: ${answers.command} --path '${shown.path}'`);
  return { ...view, diagram: view.diagram === drawn ? null : answers.diagrams[view.diagram] };
}

// The state that the end of the address names, as the page writes it there.
const ending = view => `${view.path}${view.place < view.length - 1 ? `@${view.place}` : ""}`;
const named = path => Object.keys(answers.views).find(number => ending(answers.views[number]) === path);

function ask(name, body = {}) {
  if (answers) return Promise.resolve().then(() => answer(name, body));
  const asked = line.then(async () => {
    const answer = await fetch(`api/${name}`, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ session, ...body }) });
    if (answer.status === 403) throw new Error(await answer.text());
    const reply = await answer.json();
    if (answer.status === 409) { location.reload(); return new Promise(() => {}); }
    if (!answer.ok) throw new Error(reply.error);
    return reply;
  });
  line = asked.catch(() => {});
  return asked;
}

const context = known => ({ known, drawn, watches });

async function attempt(work) {
  try { return await work(); } catch (error) {
    notify(error instanceof TypeError ? "Fencepost does not answer: is it still running?" : error.message, true);
    return null;
  }
}

const begin = body => attempt(async () => show(await ask("begin", { ...body, ...context(0) })));
const take = move => attempt(async () => show(await ask("take", { at: shown.at, move, ...context(shown.place + 1) })));
const turn = node => attempt(async () => show(await ask("look", { at: node, ...context(0) })));

function look(place) {
  place = Math.max(0, Math.min(items.length - 1, place));
  const mine = ++latest;
  mark(place);
  return attempt(() => line.then(async () => {
    if (mine === latest) show(await ask("look", { tip: shown.tip, at: items[place].node, ...context(items.length) }));
  }));
}

// -- showing ----------------------------------------------------------------------------------------------------------

function show(view) {
  const before = items.length;
  const same = shown && view.known === before && shown.tip === view.tip;
  shown = view;
  if (!same) {
    items.length = view.known;
    items.push(...view.items);
    history(view.known);
  }
  $("steps").textContent = items.length > 1 ? `${items.length - 1} ${items.length === 2 ? "step" : "steps"}` : "";
  draw();
  judge();
  mark(view.place);
  next();
  $("cards").innerHTML = view.state;
  reveal($("cards").querySelector("tr.changed"), $("state"), 52);
  if (answered !== null && view.at !== answered) { answered = null; $("said").textContent = ""; }
  $("again").textContent = view.again ?? (view.place ? "changes of the last step are marked" : "");
  window.history.replaceState(null, "", `${location.pathname}#${ending(view)}`);
  for (const link of document.querySelectorAll("[data-keep]")) link.href = `keep/${link.dataset.keep}?session=${session}&tip=${view.tip}`;
  document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
}

function introduce(view) {
  session = view.session;
  stored = `fencepost:${view.protocol}`;
  if (!answers) try { watches = JSON.parse(localStorage.getItem(stored) ?? "[]"); } catch { watches = []; }
  document.title = `${view.protocol} · Fencepost`;
  $("protocol").textContent = view.protocol;
  $("constants-summary").textContent = view.constants.map(([name, value]) => `${name}=${value}`).join("  ") || "no constants";
  $("constants").replaceChildren(...view.constants.map(([name, value]) => make("li", { text: `${name}=` }, make("b", { text: value }))));
  $("expression").placeholder = `an expression, such as ${view.variables[0] ?? "True"}`;
}

function history(from) {
  const list = $("history");
  while (list.children.length > from) list.lastChild.remove();
  items.slice(from).forEach((item, offset) => list.append(row(item, from + offset)));
  if (shown.loop !== null) {
    const where = shown.loop ? `after step ${shown.loop}` : "the start";
    const said = shown.loop === items.length - 1 ? "and nothing more happens, for ever" : `and again as ${where}, for ever`;
    list.append(make("li", { class: "again-row" }, make("span", { class: "again", text: said })));
  }
}

function row(item, place) {
  const broken = item.broken.length > 0;
  const branches = item.branches.length
    ? make("button", { type: "button", class: "branches", "data-branch": place, title: `${item.branches.length} branches at this step: [ and ]`, text: `branch ${item.branches.indexOf(item.node) + 1}/${item.branches.length}` }) : null;
  return make("li", { "data-place": place, class: `${broken ? "broken" : ""} ${shown.loop !== null && place > shown.loop ? "loops" : ""}` },
    make("span", { class: "number", text: place }),
    make("span", { class: "title", title: item.title }, item.by ? make("span", { class: "actor", text: `${item.by} ` }) : null, item.title), make("span", { class: "marks" }, make("span", { class: "turns" }), branches),
    broken ? make("span", { class: "why", text: `✗ ${item.broken.join(", ")}`, title: item.broken.join(", ") }) : null);
}

function draw() {
  const { diagram } = shown, box = $("diagram");
  if (diagram) {
    drawn = diagram.key;
    box.innerHTML = `<div class="heads">${diagram.heads}</div>${diagram.body}`;
    fit();
    $("part").textContent = diagram.first || diagram.last < items.length - 1 ? `steps ${diagram.first + 1} to ${diagram.last} of ${items.length - 1}` : "";
    if (items.length === 1) box.innerHTML = '<p class="none">It grows with every step. Take one.</p>';
  }
}

// Shrink a diagram that is a little too wide. One that is much too wide is scrolled.
function fit() {
  for (const picture of $("diagram").querySelectorAll("svg")) {
    const { width, height } = picture.viewBox.baseVal;
    const room = $("diagram").clientWidth - 2;
    const scale = Math.max(room < 600 ? 1 : 0.78, Math.min(1, room / width));
    picture.setAttribute("width", width * scale);
    picture.setAttribute("height", height * scale);
  }
  slide();
}

function mark(place) {
  $("where").textContent = place ? `step ${place} of ${items.length - 1}` : "initial state";
  for (const item of $("history").querySelectorAll(".on, [aria-current]")) { item.classList.remove("on"); item.removeAttribute("aria-current"); }
  const rows = $("history").children;
  for (const old of $("history").querySelectorAll(".ahead")) if (Number(old.dataset.place) <= place) old.classList.remove("ahead");
  for (let i = Math.min(items.length, rows.length) - 1; i > place && !rows[i].classList.contains("ahead"); i--) rows[i].classList.add("ahead");
  rows[place]?.classList.add("on");
  rows[place]?.setAttribute("aria-current", "step");
  reveal(rows[place], $("history"));
  for (const part of $("diagram").querySelectorAll("[data-step]")) {
    part.classList.toggle("on", Number(part.dataset.step) === place || Number(part.dataset.to) === place);
    if (part.matches(".strip, .title")) part.classList.toggle("broken", (items[part.dataset.step]?.broken.length ?? 0) > 0);
  }
  reveal($("diagram").querySelector(`.band[data-step="${place}"]`), $("diagram"), 44);
  if (!place) $("diagram").scrollTop = 0;
  aside();
  const ends = { first: place === 0, back: place === 0, forth: place >= items.length - 1 && !(shown.loop !== null && shown.loop < items.length - 1), last: place >= items.length - 1 };
  for (const button of document.querySelectorAll("[data-go]")) button.disabled = ends[button.dataset.go];
}

// If the diagram is wider than its panel, scroll to what the step does.
function aside() {
  const box = $("diagram"), outer = box.getBoundingClientRect();
  const parts = [...box.querySelectorAll(".arrow.on, .note.on")].map(part => part.getBoundingClientRect());
  if (!parts.length || box.scrollWidth <= box.clientWidth) return;
  const left = Math.min(...parts.map(part => part.left)) - 8, right = Math.max(...parts.map(part => part.right)) + 8;
  if (right > outer.right) box.scrollLeft += Math.min(right - outer.right, left - outer.left);
  else if (left < outer.left) box.scrollLeft += left - outer.left;
}

// Keep the titles of the steps visible while the diagram scrolls sideways.
function slide() {
  const box = $("diagram");
  for (const picture of box.querySelectorAll("svg")) {
    const by = box.scrollLeft * picture.viewBox.baseVal.width / picture.clientWidth;
    for (const title of picture.querySelectorAll(".title")) title.style.transform = by ? `translateX(${by}px)` : "";
  }
}

function reveal(child, box, above = 0) {
  if (!child || !child.getClientRects().length) return;
  const inner = child.getBoundingClientRect(), outer = box.getBoundingClientRect();
  if (inner.top < outer.top + above) box.scrollTop += inner.top - outer.top - above - 8;
  else if (inner.bottom > outer.bottom - 8) box.scrollTop += Math.min(inner.bottom - outer.bottom + 16, inner.top - outer.top - above - 8);
}

function next() {
  offers = [];
  const groups = shown.actors.map(({ by, actions }) => make("div", {}, make("h3", { text: by || "nobody in particular" }), ...actions.flatMap(act)));
  const end = shown.stuck ? [make("p", { class: "none", text: offers.length ? "No step from here changes anything." : "No step is possible from here." })] : [];
  $("next").replaceChildren(...end, ...groups);
  $("count").textContent = offers.length ? `${offers.length} ${offers.length === 1 ? "step" : "steps"}` : "";
  choose(0, false);
  $("next").scrollTop = 0;
}

function act(action) {
  if (action.error) return [make("p", { class: "raised", role: "alert", text: action.error })];
  const ways = action.offers.length > 1;
  const found = action.offers.map(offer => {
    const number = offers.push(offer);
    return make("button", { type: "button", class: `offer ${offer.nothing ? "nothing" : ""}`, "data-offer": number - 1, title: action.doc || undefined },
      number <= 9 ? make("kbd", { text: number }) : make("span"),
      ways ? make("span", { class: "title way", text: offer.label }) : make("span", { class: "title", html: action.html }, offer.label ? make("i", { text: ` ${offer.label}` }) : null),
      make("ul", { html: offer.effects }), offer.cut ? make("span", { class: "cut", text: `the checker goes no further here: ${offer.cut}` }) : null);
  });
  return ways ? [make("p", { class: "ways", html: action.html, title: action.doc || undefined }), ...found] : found;
}

function choose(number, asked = true) {
  if (!offers.length) return;
  chosen = Math.max(0, Math.min(offers.length - 1, number));
  for (const button of $("next").querySelectorAll(".offer")) button.classList.toggle("chosen", Number(button.dataset.offer) === chosen);
  if (asked) reveal($("next").querySelector(".chosen"), $("next"), 26);
}

function judge() {
  const wrong = shown.judged.filter(one => !one.holds).length;
  $("verdict").textContent = shown.judged.length ? (wrong ? `${wrong} of ${shown.judged.length} invariants false here` : `${shown.judged.length} invariants hold here`) : "";
  $("verdict").classList.toggle("wrong", wrong > 0);
  const sorted = [...shown.judged].sort((a, b) => (b.false.length > 0) - (a.false.length > 0));
  $("invariants").replaceChildren(...sorted.map(one => make("li", { class: one.holds ? "" : "wrong", "data-invariant": one.name, title: one.doc || undefined },
    make("span", { class: "mark", text: one.holds ? "✓" : "✗" }), make("span", { class: "name", html: one.html }),
    one.error ? make("span", { class: "raised", text: one.error }) : null,
    one.false.length ? make("span", { class: "since" }, "false", ...jumps(one.false)) : null)));
  $("sought").replaceChildren(...shown.sought.map(one => make("li", { "data-sought": one.name, title: one.doc || undefined },
    make("span", { class: "mark", text: one.here ? "◆" : "◇" }), make("span", { class: "name", html: one.html }),
    make("span", { class: "since" }, one.true.length ? "reached" : "to be reached: not on this walk", ...jumps(one.true)))));
  const lasso = shown.loop !== null, many = shown.temporal.length > 1;
  const broken = lasso ? shown.temporal.filter(one => one.when) : [];
  $("temporal").replaceChildren(...broken.map(one => make("li", { class: "wrong", "data-temporal": one.name, title: one.doc || undefined },
    make("span", { class: "mark", text: "✗" }), make("span", { class: "name", text: one.name }), make("span", { class: "since", text: `${one.when}, for ever` }))));
  const rest = shown.temporal.filter(one => !broken.includes(one)).map(one => one.name).join(", ");
  $("promise").hidden = !shown.temporal.length;
  $("promise").textContent = broken.length ? `${rest ? `The loop does not break ${rest}. ` : ""}Only check judges whether the loop is fair.`
    : lasso ? `The loop does not break ${rest}.`
    : `${rest} ${many ? "are" : "is"} about whole behaviours: judged by check, and here only if the walk comes back to an earlier state.`;
  $("watches").replaceChildren(...shown.watches.map((watch, number) => make("li", {},
    make("span", { class: "mark", text: "=" }), make("span", { class: "name", text: watch.text }), make("button", { type: "button", class: "drop", "data-drop": number, "aria-label": `Stop watching ${watch.text}`, text: "×" }),
    watch.error ? make("span", { class: "error", text: watch.error }) : make("span", { class: "now", text: watch.now }),
    watch.runs.length > 1 ? make("span", { class: "runs" }, ...watch.runs.map(run => jump(run.from, `${run.from}: ${run.value}`, run.to, run.false))) : null)));
  turns();
}

function jumps(intervals) {
  return intervals.map(([from, to]) => jump(from, from === to ? `at ${from}` : to === items.length - 1 ? `from ${from} on` : `${from} to ${to}`, to));
}

function jump(place, text, to, wrong = false) {
  const here = shown.place >= place && shown.place <= to;
  return make("button", { type: "button", class: `jump ${here ? "on" : ""} ${wrong ? "false" : ""}`, "data-jump": place, text, title: text });
}

function turns() {
  for (const old of $("history").querySelectorAll(".turn")) old.remove();
  for (const watch of shown.watches) {
    for (const run of watch.runs.slice(1)) {
      $("history").children[run.from]?.querySelector(".turns")?.append(make("span", { class: `turn ${run.false ? "false" : ""}`, title: `${watch.text} becomes ${run.value}` }));
    }
  }
}

let quiet = 0;
function notify(text, wrong = false) {
  $("message").textContent = text;
  $("message").classList.toggle("wrong", wrong);
  clearTimeout(quiet);
  quiet = setTimeout(() => { $("message").textContent = ""; }, wrong ? 9000 : 2500);
}

// -- walking ----------------------------------------------------------------------------------------------------------

let wished = 0;
function go(way) {
  const last = items.length - 1;
  wished = latest && waiting() ? wished : shown.place;
  if (way === "forth" && wished === last && shown.loop !== null && shown.loop < last) wished = shown.loop + 1;
  else wished = { first: 0, back: wished - 1, forth: wished + 1, last }[way];
  wished = Math.max(0, Math.min(last, wished));
  looking = look(wished).finally(() => { looking = null; });
}
let looking = null;
const waiting = () => looking !== null;

function branch(way, place = shown.place) {
  const { branches, node } = items[place];
  if (branches.length > 1) turn(branches[(branches.indexOf(node) + way + branches.length) % branches.length]);
}

async function copy() {
  try { await navigator.clipboard.writeText(location.href); notify("Link copied."); } catch { notify(location.href); }
}

// -- watches and searches ---------------------------------------------------------------------------------------------

const again = () => look(shown.place);

function watch() {
  const text = $("expression").value.trim();
  if (!text) return;
  if (!watches.includes(text)) watches.push(text);
  $("expression").value = "";
  remember();
  again();
}

function remember() {
  try { localStorage.setItem(stored, JSON.stringify(watches)); } catch { /* then they last as long as the page */ }
}

async function find(at) {
  const expression = $("expression").value.trim();
  if (!expression) { $("expression").focus(); return; }
  const reply = await attempt(() => ask("find", { expression, ...(at === null ? {} : { at }) }));
  if (reply) follow(reply);
}

async function follow(reply) {
  const { search, node } = reply;
  const running = search?.running ?? false;
  $("stop").hidden = !running;
  if (!running) $("stop").disabled = false;
  $("said").classList.toggle("running", running);
  for (const id of ["find-here", "find-start"]) $(id).disabled = running;
  if (!search) { $("said").textContent = ""; return; }
  answered = running ? null : node ?? shown?.at ?? null;
  const far = search.distinct ? ` … ${search.distinct.toLocaleString("en")} states, level ${search.depth}, ${search.seconds} s` : " …";
  $("said").textContent = running ? ($("stop").disabled ? "Stopping …" : `${search.said || "Looking"}${far}`) : search.said;
  if (node !== undefined) turn(node);
  if (running) setTimeout(async () => { const later = await attempt(() => ask("found")); if (later) follow(later); }, 250);
}

function stop() {
  if ($("stop").hidden) return;
  $("said").textContent = "Stopping …";  // immediately, whatever the engine is doing
  $("stop").disabled = true;
  return attempt(() => ask("stop"));
}

// -- clicks and keys --------------------------------------------------------------------------------------------------

document.addEventListener("click", event => {
  const of = name => event.target.closest(`[data-${name}]`);
  const branched = of("branch"), jumped = of("jump"), offered = of("offer"), went = of("go"), tab = event.target.closest("button[data-tab]"), drop = of("drop");
  const placed = of("place"), step = event.target.closest("#diagram [data-step]");
  for (const menu of document.querySelectorAll("details[open]")) if (!menu.contains(event.target) || event.target.matches("a")) menu.open = false;
  if (branched) branch(1, Number(branched.dataset.branch));
  else if (jumped) look(Number(jumped.dataset.jump));
  else if (offered) take(offers[Number(offered.dataset.offer)].move);
  else if (went) go(went.dataset.go);
  else if (tab) select(tab.dataset.tab);
  else if (drop) { watches.splice(Number(drop.dataset.drop), 1); remember(); again(); }
  else if (placed) look(Number(placed.dataset.place));
  else if (step) look(Number(step.dataset.step));
});

function select(name) {
  document.body.dataset.tab = name;
  for (const button of document.querySelectorAll(".tabs button")) button.setAttribute("aria-pressed", String(button.dataset.tab === name));
  fit();
  if (shown) mark(shown.place);
}

$("ask").addEventListener("submit", event => { event.preventDefault(); watch(); });
$("find-here").addEventListener("click", () => find(shown.at));
$("find-start").addEventListener("click", () => find(null));
$("stop").addEventListener("click", stop);
$("copy").addEventListener("click", copy);
$("help").addEventListener("click", () => $("keys").showModal());
$("file").addEventListener("change", async event => {
  const file = event.target.files[0];
  event.target.value = "";
  if (file && await begin({ file: await file.text() }) !== null) notify(`${file.name}: ${items.length} states`);
});
$("expression").addEventListener("keydown", event => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); find(shown.at); }
  if (event.key === "Escape") event.target.blur();
});

const KEYS = {
  ArrowLeft: () => go("back"), ArrowRight: () => go("forth"), Home: () => go("first"), End: () => go("last"),
  ArrowUp: () => choose(chosen - 1), ArrowDown: () => choose(chosen + 1),
  Enter: () => { if (offers[chosen]) take(offers[chosen].move); },
  "[": () => branch(-1), "]": () => branch(1), "/": () => { select("judged"); $("expression").focus(); },
  s: stop, c: copy, o: () => $("file").click(), "?": () => $("keys").showModal(),
};

function number(n) {
  if (offers[n - 1]) take(offers[n - 1].move);
  else notify(offers.length ? `There is no step ${n} here: the last is ${offers.length}.` : "No step is possible here.");
}

document.addEventListener("keydown", event => {
  if (!shown || event.altKey || event.ctrlKey || event.metaKey || $("keys").open) return;
  if (event.target.closest("input, textarea, select") && event.target.id !== "file") return;
  if (event.key === "Enter" && event.target.closest("button, summary, a")?.checkVisibility()) return;  // Enter presses the focused element
  if (/^[1-9]$/.test(event.key)) { number(Number(event.key)); } else if (KEYS[event.key]) KEYS[event.key](); else return;
  event.preventDefault();
});

let sideways = 0;
$("diagram").addEventListener("scroll", () => { if ($("diagram").scrollLeft !== sideways) { sideways = $("diagram").scrollLeft; slide(); } }, { passive: true });
window.addEventListener("resize", () => { fit(); if (shown) mark(shown.place); });
window.addEventListener("hashchange", () => { if (location.hash.length > 1) begin({ path: decodeURIComponent(location.hash.slice(1)) }); });

// -- start ------------------------------------------------------------------------------------------------------------

select("next");
const about = await attempt(() => ask("about"));
if (about) {
  introduce(about);
  const path = decodeURIComponent(location.hash.slice(1));
  await begin(path ? { path } : {});
  if (!shown) { await begin({}); }  // the link leads nowhere; its error stays visible
  if (about.search?.running) follow(about);
}
