// The coordinator's status page: asks for /status and new /events each second and draws them.

const POLL = 1000, POLL_HIDDEN = 5000, PATIENCE = 5000, MOST_EVENTS = 300;
// Kinds of events that somebody may have to look into, and those that are good news.
const BAD = new Set(["failed", "lost", "worker-lost", "checkpoint-failed", "checkpoint-damaged",
  "checkpoint-lost", "mirror-failed", "deltas-failed", "upkeep-failed", "skipped", "late"]);
const WARN = new Set(["generation", "straggler", "no-progress", "stopping", "restarted", "released",
  "cut-off"]);
const GOOD = new Set(["done", "epoch-done", "checkpoint", "progress", "straggler-over"]);
const OVER = new Set(["done", "failed", "stopping"]);
const COLOURS = { running: "#1a5fd0", waiting: "#566173", done: "#0d6b40", failed: "#b4261d", stopping: "#855600" };

const $ = (id) => document.getElementById(id);
const known = (x) => x !== null && x !== undefined;
const or = (x, say) => known(x) ? say(x) : "–";
const whole = (x) => or(x, (n) => Math.round(n).toLocaleString("en"));
const fixed = (x, digits) => or(x, (n) => n.toFixed(digits));
const percent = (x) => or(x, (n) => `${Math.round(100 * n)} %`);
const short = (x) => x.toLocaleString("en", { notation: "compact", maximumSignificantDigits: 3 });
const bytes = (x) => or(x, (n) => n < 1e9 ? `${Math.round(n / 1e6)} MB` : `${(n / 1e9).toFixed(1)} GB`);
const time = (x) => or(x, (s) => s < 60 ? `${s.toFixed(0)}\u00a0s`
  : s < 3600 ? `${Math.floor(s / 60)}\u00a0min ${Math.floor(s % 60)}\u00a0s`
    : `${Math.floor(s / 3600)}\u00a0h ${Math.floor(s % 3600 / 60)}\u00a0min`);
const two = (n) => String(Math.floor(n)).padStart(2, "0");
const clock = (s) => s < 3600 ? `${Math.floor(s / 60)}:${two(s % 60)}` : `${Math.floor(s / 3600)}:${two(s % 3600 / 60)}:${two(s % 60)}`;

// -- pieces of the page: only what has changed is touched, so that a selection survives --

function element(tag, content = "", properties = {}) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...[content].flat());
  return made;
}
function text(node, value) {
  if (node.textContent !== value) node.textContent = value;
}
function pill(word, kind) {
  return { text: word, kind };
}
function fill(cell, value, column) {
  const said = typeof value === "object" ? value : { text: value };
  if (cell.dataset.said === JSON.stringify(said)) return;
  cell.dataset.said = JSON.stringify(said);
  cell.dataset.name = column.name;
  cell.className = column.as || "";
  cell.replaceChildren(said.kind ? element("span", said.text, { className: `pill ${said.kind}` })
    : element("span", said.text, { className: said.tone || "" }));
  if (known(said.share)) {
    const share = element("span", element("i"), { className: "share" });
    share.firstChild.style.width = `${100 * said.share}%`;
    cell.append(share);
  }
}
// columns: [{name, as, of(row)}]
function table(id, title, columns, rows, none) {
  const found = $(id), heads = columns.map((column) => column.name).join("|");
  if (found.dataset.heads !== heads) {
    found.dataset.heads = heads;
    found.replaceChildren(element("caption", title, { className: "hidden" }),
      element("thead", element("tr", columns.map((column) =>
        element("th", column.name, { scope: "col", className: column.as || "" })))), element("tbody"));
  }
  const body = found.tBodies[0];
  if (!rows.length) {
    if (!body.querySelector(".empty")) body.replaceChildren(element("tr", element("td", none, { className: "empty left", colSpan: columns.length })));
    return;
  }
  body.querySelector(".empty")?.parentNode.remove();
  while (body.rows.length > rows.length) body.deleteRow(-1);
  rows.forEach((row, number) => {
    const line = body.rows[number] || body.insertRow();
    columns.forEach((column, place) => fill(line.cells[place] || line.insertCell(), column.of(row), column));
  });
}
function pairs(id, entries) {
  const list = $(id), names = entries.map(([name]) => name).join("|");
  if (list.dataset.names !== names) {
    list.dataset.names = names;
    list.replaceChildren(...entries.map(([name, , , colour]) => {
      const term = element("dt", name);
      if (colour) term.style.setProperty("--of", colour); else term.className = "plain";
      return element("div", [term, element("dd", [element("span"), element("small")])]);
    }));
  }
  entries.forEach(([, value, more], number) => {
    const [main, small] = list.children[number].lastChild.children;
    text(main, value);
    text(small, more || "");
  });
}

// -- charts --

const SVG = "http://www.w3.org/2000/svg";
const MARGIN = { left: 54, right: 12, top: 10, bottom: 22 };
const drawn = {};

function shape(tag, attributes, content) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (content) made.textContent = content;
  return made;
}
function ticks(low, high, most, sixties) {
  const rough = (high - low) / most || 1, power = 10 ** Math.floor(Math.log10(rough));
  const steps = sixties ? [1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 86400] : [1, 2, 2.5, 5, 10].map((n) => n * power);
  const step = steps.find((n) => n >= rough) || steps[steps.length - 1];
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high + step * 1e-9; n += 1) found.push(n * step || 0);
  return found;
}
// how: {from, zero, sixties, x(value), y(value), lines, dots, point(point), words(points)}; from: where x begins
function chart(id, points, how) {
  drawn[id] = { points, how };
  const svg = $(id), width = svg.clientWidth, height = svg.clientHeight;
  if (!width) return;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  if (points.length < 2) {
    svg.replaceChildren(shape("text", { x: width / 2, y: height / 2, "text-anchor": "middle" }, "nothing yet"));
    text($(`${id}-words`), "");
    return;
  }
  const xs = points.map((point) => point[0]), ys = points.map((point) => point[1]);
  const first = how.from ?? xs[0], last = xs[xs.length - 1];
  const spread = Math.max(...ys) - Math.min(...ys) || Math.abs(ys[0]) / 10 || 1;
  const low = how.zero ? 0 : Math.min(...ys) - spread / 20, high = Math.max(...ys) + spread / 20;
  const x = (value) => MARGIN.left + (width - MARGIN.left - MARGIN.right) * (value - first) / (last - first || 1);
  const y = (value) => height - MARGIN.bottom - (height - MARGIN.top - MARGIN.bottom) * (value - low) / (high - low);
  const place = ([a, b]) => `${x(a).toFixed(1)},${y(b).toFixed(1)}`;
  const line = points.map(place).join(" ");
  svg.replaceChildren(
    ...ticks(low, high, 5).flatMap((at) => [
      shape("line", { class: "grid", x1: MARGIN.left, x2: width - MARGIN.right, y1: y(at), y2: y(at) }),
      shape("text", { x: MARGIN.left - 6, y: y(at) + 4, "text-anchor": "end" }, how.y(at))]),
    ...(how.lines || []).map((at) => shape("line", { class: "epoch", x1: x(at), x2: x(at), y1: MARGIN.top, y2: height - MARGIN.bottom })),
    ...ticks(first, last, Math.max(2, Math.floor(width / 110)), how.sixties).map((at) =>
      shape("text", { x: x(at), y: height - 6, "text-anchor": at === first ? "start" : x(at) > width - 30 ? "end" : "middle" }, how.x(at))),
    shape("polygon", { class: "area", points: `${x(xs[0])},${y(low)} ${line} ${x(xs[xs.length - 1])},${y(low)}` }),
    shape("polyline", { class: "line", points: line }),
    ...(how.dots ? points.map(([a, b]) => shape("circle", { class: "dot", r: 2, cx: x(a), cy: y(b) })) : []),
    shape("circle", { class: "mark", r: 3.5, cx: x(xs[xs.length - 1]), cy: y(ys[ys.length - 1]) }));
  text($(`${id}-words`), how.words(points));
  svg.onpointermove = (event) => {
    const at = first + (last - first) * (event.offsetX - MARGIN.left) / (width - MARGIN.left - MARGIN.right);
    const near = points.reduce((a, b) => Math.abs(b[0] - at) < Math.abs(a[0] - at) ? b : a);
    text($(`${id}-point`), how.point(near));
    const mark = svg.querySelector(".mark");
    mark.setAttribute("cx", x(near[0]));
    mark.setAttribute("cy", y(near[1]));
  };
  svg.onpointerleave = () => text($(`${id}-point`), "");
}
new ResizeObserver(() => Object.entries(drawn).forEach(([id, { points, how }]) => chart(id, points, how))).observe(document.body);

// A coordinator that was started again knows only what came after: what was seen before stays.
const kept = {};
function together(name, points) {
  const before = (kept[name] || []).filter((point) => !points.length || point[0] < points[0][0]);
  return kept[name] = [...before, ...points];
}

// -- what the page says --

let latest = null, heard = 0, refusal = "";

function notices(s) {
  const found = [];
  const silent = Date.now() - heard;
  if (refusal) found.push(["bad", refusal]);
  else if (silent > PATIENCE && s && OVER.has(s.job)) found.push([s.job === "done" ? "good" : "warn", "The coordinator has ended with its job; this is the last that it said."]);
  else if (silent > PATIENCE) found.push(["warn", `The coordinator has not answered for ${time(silent / 1000)}. It may be restarting; this page goes on by itself.`]);
  if (s?.reason) found.push([s.job === "failed" ? "bad" : "warn", s.reason, s.failure?.log_tail]);
  else if (s?.stalled) found.push(["warn", `Nothing goes on: ${s.stalled}`]);
  if (s?.checkpoint.failures) found.push(["warn", `${s.checkpoint.failures} checkpoint${s.checkpoint.failures > 1 ? "s" : ""} failed in a row: ${s.checkpoint.reason}`]);
  const said = JSON.stringify(found);
  if ($("notices").dataset.said === said) return;
  $("notices").dataset.said = said;
  $("notices").replaceChildren(...found.map(([kind, words, log]) =>
    element("div", [words, ...(log?.length ? [element("pre", log.join("\n"))] : [])], { className: `notice ${kind}`, role: kind === "bad" ? "alert" : "note" })));
}

function where(s) {
  if (s.missing.length && !OVER.has(s.job)) return `waits for ${s.missing.join(", ")}`;
  if (s.job !== "running") return "";
  const part = s.phase_rows_total ? ` ${Math.floor(100 * s.phase_rows_done / s.phase_rows_total)} %` : "";
  return `epoch ${Math.min(s.epoch + 1, s.epochs)} of ${s.epochs}, ${s.phase}${part}, mode ${s.mode}`;
}

function headline(s) {
  const share = s.rows_total ? s.rows_done / s.rows_total : 0;
  document.title = `${s.job === "running" ? `${Math.floor(100 * share)} % ` : ""}${s.name} ${s.job} – FleetPS`;
  $("icon").href = `data:image/svg+xml,${encodeURIComponent(`<svg xmlns="${SVG}" viewBox="0 0 8 8"><circle cx="4" cy="4" r="4" fill="${COLOURS[s.job]}"/></svg>`)}`;
  text($("name"), s.name);
  text($("state"), s.job);
  $("state").className = `badge ${s.job}`;
  text($("where"), where(s));
  const bar = $("progress");
  bar.setAttribute("aria-valuenow", Math.floor(100 * share));
  bar.setAttribute("aria-valuetext", `${whole(s.rows_done)} of ${whole(s.rows_total)} rows`);
  bar.firstElementChild.style.width = `${100 * share}%`;
  if (bar.children.length !== Math.min(s.epochs, 60)) {
    const marks = s.epochs <= 60 ? [...Array(s.epochs - 1).keys()] : [];
    bar.replaceChildren(bar.firstElementChild, ...marks.map((n) => {
      const mark = element("i");
      mark.style.left = `${100 * (n + 1) / s.epochs}%`;
      return mark;
    }));
  }
}

function tiles(s) {
  const last = s.history.filter((epoch) => known(epoch.auc)).pop(), c = s.checkpoint;
  pairs("tiles", [
    ["rows trained", percent(s.rows_total ? s.rows_done / s.rows_total : 0), `${whole(s.rows_done)} of ${whole(s.rows_total)}`],
    ["rows per second", whole(s.rows_per_second), "over 10 s"],
    ["loss", fixed(s.loss, 4), "over 10 s"],
    ["AUC", fixed(last?.auc, 4), last ? `after epoch ${last.epoch + 1}` : "after the first epoch"],
    ["time left", or(s.eta, (n) => n < 60 || n >= 3600 ? time(n) : `${Math.round(n / 60)}\u00a0min`), known(s.eta) ? "for training" : ""],
    ["running for", time(s.seconds), s.generation ? `generation ${s.generation}` : ""],
    ["last checkpoint", c.number ? `${time(c.age)} ago` : "none", c.number ? `${whole(c.rows)} rows, pause ${fixed(c.pause, 1)}\u00a0s` : c.pending ? "one is being taken" : ""],
    ["workers lost", whole(s.workers_lost), s.workers_lost ? "while the job went on" : ""],
    ...(known(s.max_lead) ? [["greatest lead", whole(s.max_lead), "steps"]] : []),
  ]);
}

function curves(s) {
  const epochs = [...Array(Math.min(s.epochs, 60)).keys()].map((n) => n * s.rows_total / s.epochs);
  chart("loss", together("loss", s.loss_curve), {
    from: 0, lines: epochs.slice(1).filter((rows) => rows <= s.rows_done), x: short, y: (v) => v.toFixed(3),
    point: ([rows, loss]) => `${loss.toFixed(5)} at ${whole(rows)} rows`,
    words: (points) => `from ${points[0][1].toFixed(4)} to ${points[points.length - 1][1].toFixed(4)}; mean of 10 s`,
  });
  let rows = 0;
  const evaluated = s.history.map((epoch) => [rows += epoch.train_rows, epoch.auc, epoch.epoch + 1]).filter((epoch) => known(epoch[1]));
  chart("auc", evaluated, {
    from: 0, dots: evaluated.length <= 60, x: short, y: (v) => v.toFixed(3),
    point: ([, auc, epoch]) => `${auc.toFixed(5)} after epoch ${epoch}`,
    words: (points) => `from ${points[0][1].toFixed(4)} to ${points[points.length - 1][1].toFixed(4)}, best ${Math.max(...points.map((p) => p[1])).toFixed(4)}`,
  });
  chart("speed", together("speed", s.speed_curve || []), {
    zero: true, sixties: true, x: clock, y: short,
    point: ([seconds, speed]) => `${whole(speed)} rows/s after ${time(seconds)}`,
    words: (points) => `now ${whole(points[points.length - 1][1])}, at most ${whole(Math.max(...points.map((p) => p[1])))}; evaluation included`,
  });
}

function memberColumns(silent) {
  return {
    rank: (role) => ({ name: role, as: "left lead", of: (m) => `${role} ${m.rank}` }),
    state: { name: "state", as: "left", of: (m) => m.state !== "exited" && m.heartbeat_age > silent ? pill("silent", "bad")
      : m.straggler ? pill(`${m.state}, slow`, "warn")
        : pill(m.state === "exited" ? "left" : m.state, { running: "running", serving: "serving", registered: "warn" }[m.state] || "quiet") },
    memory: { name: "memory", of: (m) => !known(m.memory?.used) ? "–" : { text: bytes(m.memory.used),
      tone: m.memory.limit && m.memory.used > .9 * m.memory.limit ? "bad" : "", share: m.memory.limit ? Math.min(m.memory.used / m.memory.limit, 1) : null } },
    heard: { name: "heard of", of: (m) => m.state === "exited" ? "–" : { text: `${fixed(m.heartbeat_age, 1)} s ago`, tone: m.heartbeat_age > silent ? "bad" : "" } },
  };
}
const there = (members) => members.filter((m) => m.state !== "exited").length;
// From then on the coordinator doubts that a member lives.
const silence = (s) => 2.5 * s.heartbeat || Infinity;

function workers(s) {
  const bounded = known(s.max_lead), of = memberColumns(silence(s)), fastest = Math.max(1, ...s.workers.map((w) => w.rows_per_second));
  const steps = s.workers.some((w) => known(w.step_seconds));
  text($("workers-count"), `${there(s.workers)} of ${s.wanted?.worker ?? s.workers.length}`);
  table("workers", "Workers", [of.rank("worker"), of.state,
    { name: "rows", of: (w) => whole(w.rows) },
    { name: "rows/s", of: (w) => ({ text: whole(w.rows_per_second), share: w.rows_per_second / fastest }) },
    { name: "loss", of: (w) => fixed(w.loss, 4) },
    { name: "task", of: (w) => or(w.task, String) },
    ...(steps ? [{ name: "batch", of: (w) => or(w.step_seconds, (n) => `${(1000 * n).toPrecision(3)} ms`) }, { name: "idle", of: (w) => percent(w.idle) }] : []),
    ...(bounded ? [{ name: "lead", of: (w) => whole(w.lead) }, { name: "waited", of: (w) => time(w.waited) }] : []),
    of.memory, of.heard], s.workers, "no worker has come yet");
}
function servers(s) {
  const of = memberColumns(silence(s));
  text($("servers-count"), `${there(s.servers)} of ${s.wanted?.server ?? s.servers.length}`);
  table("servers", "Servers", [of.rank("server"), of.state, { name: "address", as: "left broad", of: (m) => m.address },
    { name: "rows", as: "broad", of: (m) => Object.entries(m.rows).map(([name, rows]) => `${name} ${whole(rows)}`).join(", ") || "–" },
    of.memory, of.heard], s.servers, "no server has come yet");
}
function epochs(s) {
  text($("best"), known(s.best_auc) ? `best possible AUC of this data: ${fixed(s.best_auc, 5)}` : "");
  table("epochs", "Results of the epochs", [{ name: "epoch", as: "left lead", of: (e) => `epoch ${e.epoch + 1}` },
    { name: "train loss", of: (e) => fixed(e.train_loss, 5) }, { name: "AUC", of: (e) => fixed(e.auc, 5) },
    { name: "log loss", of: (e) => fixed(e.log_loss, 5) }, { name: "calibration", of: (e) => fixed(e.calibration, 3) },
    { name: "test rows", of: (e) => whole(e.evaluated_rows) }, { name: "time", of: (e) => time(e.seconds) }], [...s.history].reverse(), "no epoch is done yet");
}
function accounting(s) {
  const a = s.accounting;
  const states = [["done", "var(--good)"], ["held", "var(--accent)"], ["waiting", "var(--line)"], ["quarantined", "var(--bad)"], ["skipped", "var(--warn)"]]
    .filter(([name]) => known(a[name]));
  if ($("stack").children.length !== states.length) $("stack").replaceChildren(...states.map(([, colour]) => {
    const part = element("i");
    part.style.background = colour;
    return part;
  }));
  states.forEach(([name], number) => { $("stack").children[number].style.width = `${100 * a[name] / (a.total || 1)}%`; });
  pairs("rows", [...states.map(([name, colour]) => [name, whole(a[name]), "", colour]),
    ["leased", whole(a.leased)], ["returned", whole(a.returned)], ["repeated", whole(a.repeated)]]);
}
function show(s) {
  for (const part of [headline, notices, tiles, curves, workers, servers, epochs, accounting]) part(s);
  text($("version"), `FleetPS ${s.versions.fleetps || ""}`);
}

// -- asking --

let after = 0;
async function events() {
  const found = (await get(`events?after=${after}`)).events;
  const list = $("events");
  if (!list.tHead) list.replaceChildren(element("caption", "Events, the newest first", { className: "hidden" }),
    element("thead", element("tr", ["time", "kind", "who", "what"].map((name) => element("th", name, { scope: "col", className: "left" })))), element("tbody"));
  for (const e of found) {
    after = e.id;
    const kind = BAD.has(e.kind) ? "bad" : WARN.has(e.kind) ? "warn" : GOOD.has(e.kind) ? "good" : "quiet";
    const when = element("td", element("time", new Date(e.time).toLocaleTimeString(), { dateTime: e.time, title: e.time }), { className: "quiet" });
    list.tBodies[0].prepend(element("tr", [when, element("td", element("span", e.kind, { className: `pill ${kind}` })),
      element("td", e.who), element("td", e.text)], { className: kind === "bad" || kind === "warn" ? "" : "plain" }));
  }
  while (list.tBodies[0].rows.length > MOST_EVENTS) list.tBodies[0].deleteRow(-1);
}
async function get(path) {
  const answer = await fetch(path, { cache: "no-store", signal: AbortSignal.timeout(PATIENCE) });
  if (answer.status === 401) throw Object.assign(new Error("The coordinator wants another token now: load this page again."), { refused: true });
  if (!answer.ok) throw new Error(`HTTP status ${answer.status}`);
  return answer.json();
}
function pulse() {
  const silent = heard ? Date.now() - heard : 0;
  $("pulse").classList.toggle("lost", silent > PATIENCE || !heard);
  text($("pulse"), !heard ? "connecting" : silent > PATIENCE ? `last heard ${time(silent / 1000)} ago` : "live");
}
async function poll() {
  try {
    const status = await get("status");
    // Another run under this address: nothing that was drawn belongs to it.
    if (latest && (status.name !== latest.name || status.seconds < latest.seconds - 30)) return location.reload();
    [latest, heard, refusal] = [status, Date.now(), ""];
    show(status);
    await events();
  } catch (error) {
    if (error.refused) refusal = error.message;
    heard ||= Date.now() - PATIENCE;
    notices(latest);
  }
  pulse();
  setTimeout(poll, document.hidden ? POLL_HIDDEN : POLL);
}
$("only-trouble").addEventListener("change", (event) => document.querySelector(".events").classList.toggle("trouble-only", event.target.checked));
document.addEventListener("visibilitychange", () => latest && show(latest));
poll();
