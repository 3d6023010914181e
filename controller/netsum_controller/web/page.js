// Reads /v1/live, a stream of server-sent events, and draws it. By fetch and not by EventSource, which cannot send a token.

const KEEP = "netsum-metrics-token";
const LEVEL = 110; // between two levels of the network, in the drawing's units
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);
let history = [];
let happened = [];
let keep = { history: 1, events: 1 }; // how many; the controller says

// Elements. Text comes in as text, never as HTML.

function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function drawing(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(made, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children.filter((child) => child !== null));
  return made;
}

// Numbers, in the units of `netsum job top`.

function bytesPerSecond(value) {
  if (value === null || value === undefined) return "–";
  for (const [unit, size] of [["GB/s", 1e9], ["MB/s", 1e6], ["kB/s", 1e3]]) {
    if (value >= size) return `${(value / size).toPrecision(3)} ${unit}`;
  }
  return `${Math.round(value)} B/s`;
}

const whole = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));
const seconds = (value) => (value < 1 ? `${Math.round(1000 * value)} ms` : `${value.toFixed(1)} s`);
const share = (value) => (value === null || value === undefined ? "–" : `${Math.round(100 * value)} %`);
const words = (name) => name.replaceAll("_", " ");

// The network: hosts below, then the switches that have hosts, and so on up.

function levels(now) {
  const level = new Map();
  let front = new Set(now.hosts.map((host) => host.switch));
  for (let height = 1; front.size; height++) {
    for (const name of front) level.set(name, height);
    const next = new Set();
    for (const { ends } of now.links) {
      for (const [one, other] of [ends, [...ends].reverse()]) {
        if (front.has(one) && !level.has(other) && now.switches.some((each) => each.name === other)) next.add(other);
      }
    }
    front = next;
  }
  for (const each of now.switches) if (!level.has(each.name)) level.set(each.name, 1);
  const hosts = [...now.hosts].sort((one, other) => order(now, one.switch) - order(now, other.switch));
  const rows = [hosts.map((host) => host.name)];
  for (const each of now.switches) (rows[level.get(each.name)] ??= []).push(each.name);
  return rows.filter((row) => row?.length);
}

const order = (now, name) => now.switches.findIndex((each) => each.name === name);

function drawNetwork(now) {
  const rows = levels(now);
  const width = Math.max(360, 84 * Math.max(...rows.map((row) => row.length)));
  const height = LEVEL * (rows.length - 1) + 56;
  const place = new Map();
  rows.forEach((row, up) =>
    row.forEach((name, at) => place.set(name, [((at + 0.5) * width) / row.length, height - 28 - up * LEVEL])),
  );
  const top = Math.max(1, ...now.links.flatMap((link) => Object.values(link.bytes_per_s).map((load) => load ?? 0)));
  const rated = now.links.some((link) => link.rate_mbps);
  byId("scale").textContent = rated ? "load, of the link's rate" : `load: 0 to ${bytesPerSecond(top)}, the busiest link`;
  const late = new Set(now.jobs.flatMap((job) => job.members.filter(isLate).map((member) => member.host)));
  const picture = drawing("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": spoken(now, late) });
  for (const link of now.links) picture.append(drawLink(link, place, top));
  for (const [name, [x, y]] of place) {
    const found = now.switches.find((each) => each.name === name);
    const kind = found ? (found.up ? "switch" : "switch down") : late.has(name) ? "host late" : "host";
    picture.append(
      drawing("rect", { x: x - 34, y: y - 14, width: 68, height: 28, rx: found ? 3 : 14, class: kind }),
      drawing("text", { x, y: y + 4 }, name),
    );
  }
  byId("network").replaceChildren(picture);
}

function drawLink(link, place, top) {
  const [from, to] = link.ends.map((name) => place.get(name));
  const load = Math.max(...Object.values(link.bytes_per_s).map((each) => each ?? 0));
  const part = Math.min(1, load / (link.rate_mbps ? 125000 * link.rate_mbps : top));
  const line = drawing("line", { x1: from[0], y1: from[1], x2: to[0], y2: to[1], "stroke-width": 2 + 5 * part });
  line.style.stroke = color(part);
  const title = Object.entries(link.bytes_per_s).map(([name, each]) => `from ${name}: ${bytesPerSecond(each)}`);
  line.append(drawing("title", {}, `${link.ends.join(" – ")}; ${title.join("; ")}`));
  return line;
}

function color(part) {
  const step = Math.min(2, Math.floor(3 * part));
  const within = Math.round(100 * (3 * part - step));
  return `color-mix(in srgb, var(--load-${step + 1}) ${within}%, var(--load-${step}))`;
}

function spoken(now, late) {
  const down = now.switches.filter((each) => !each.up).map((each) => each.name);
  const trouble = [down.length && `down: ${down.join(", ")}`, late.size && `waited for: ${[...late].join(", ")}`];
  const size = `${now.switches.length} switches, ${now.hosts.length} hosts`;
  return [size, ...trouble.filter(Boolean)].join("; ");
}

// Jobs.

const isLate = (member) => Boolean(member.straggler) || member.state === "silent";

function drawJob(job) {
  const waits = job.members.filter((member) => member.missing_blocks > 0 && member.oldest_missing_s >= 1);
  const waiting = waits.map((member) => `rank ${member.rank} (${member.host}) for ${seconds(member.oldest_missing_s)}`);
  return element(
    "article",
    { class: "job", "data-job": job.job },
    element("h3", {}, job.job),
    element("p", { class: "words" }, mode(job)),
    job.complete || job.combines !== "switch" ? null : element("p", { class: "waits" }, "not all of its switches are seen"),
    facts(job),
    waiting.length ? element("p", { class: "waits" }, `waits for ${waiting.join(", ")}`) : null,
    plot(job),
    element("div", { class: "wide", tabindex: 0, role: "region", "aria-label": `members of ${job.job}` }, members(job)),
  );
}

function mode(job) {
  const by = job.combines === "switch" ? `on ${job.switches.join(", ")}` : `its members combine by ${job.combines}, unseen by any switch`;
  const late = job.late === "degrade" ? `degrades after ${job.block_exp_ms} ms, quorum ${job.quorum}` : "waits for all";
  return [by, job.late ? late : null, `epoch ${job.epoch}`].filter(Boolean).join("; ");
}

function facts(job) {
  const refused = Object.values(job.refused).reduce((sum, count) => sum + count, 0);
  const shown = [
    ["goodput", bytesPerSecond(job.goodput_bytes_per_s)],
    ["blocks/s", whole(job.blocks_per_s)],
    ["window", job.window ? `${job.window} × ${job.block_bytes} B` : "–"],
    ["open blocks", job.open_blocks ? `${job.open_blocks}, oldest ${seconds(job.oldest_s)}` : "0"],
    ["aged", whole(job.aged ?? null)],
    ["refused", whole(refused)],
  ];
  return element("dl", { class: "facts" }, ...shown.map(([name, value]) => element("div", {}, element("dt", {}, name), element("dd", {}, value))));
}

function members(job) {
  const names = ["rank", "host", "state", "sends", "waited for", "repeats", "lacks", "last block", ""];
  const rows = job.members.map((member) =>
    element(
      "tr",
      { "data-rank": member.rank },
      element("td", {}, String(member.rank)),
      element("td", {}, member.host),
      element("td", { class: { joined: "good", silent: "bad" }[member.state] ?? "warn" }, member.state),
      ...[bytesPerSecond(member.bytes_per_s), share(member.share), whole(member.repeats), whole(member.missing_blocks), whole(member.last_block)].map(
        (text) => element("td", { class: "number" }, text),
      ),
      element("td", { class: "bad" }, member.straggler ? "straggler" : ""),
    ),
  );
  const head = names.map((name, at) => element("th", at > 2 ? { class: "number", scope: "col" } : { scope: "col" }, name));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function plot(job) {
  const points = history.filter((point) => job.job in point.jobs).map((point) => [point.at, point.jobs[job.job]]);
  if (points.length < 2) return null;
  const [first, last] = [points[0][0], points.at(-1)[0]];
  const top = Math.max(1, ...points.flatMap(([, each]) => [each.goodput, ...each.ranks].map((value) => value ?? 0)));
  const [width, height] = [Math.min(600, document.body.clientWidth - 60), 130];
  const spot = (at, value) => `${(((at - first) / (last - first)) * width).toFixed(1)},${(height - (value / top) * height).toFixed(1)}`;
  const line = (of, kind) => {
    const known = points.map(([at, each]) => [at, of(each)]).filter(([, value]) => value !== null && value !== undefined);
    return drawing("polyline", { points: known.map(([at, value]) => spot(at, value)).join(" "), class: kind });
  };
  return drawing(
    "svg",
    { viewBox: `-2 -14 ${width + 4} ${height + 32}`, role: "img", "aria-label": `goodput of ${job.job}, now ${bytesPerSecond(job.goodput_bytes_per_s)}` },
    drawing("line", { x1: 0, y1: height, x2: width, y2: height, class: "axis" }),
    drawing("line", { x1: 0, y1: 0, x2: width, y2: 0, class: "axis" }),
    ...job.members.map((member) => line((each) => each.ranks[member.rank], isLate(member) ? "late" : "rank")),
    line((each) => each.goodput, "sum"),
    drawing("text", { x: 0, y: -3, class: "soft left" }, bytesPerSecond(top)),
    drawing("text", { x: width, y: -3, class: "soft right" }, "thick: goodput; thin: sent by each rank"),
    drawing("text", { x: 0, y: height + 14, class: "soft left" }, `${seconds(last - first)} ago`),
    drawing("text", { x: width, y: height + 14, class: "soft right" }, "now"),
  );
}

// Switches and events.

function drawSwitches(now) {
  const counts = (found) => Object.entries(found).map(([name, count]) => `${words(name)} ${whole(count)}`).join(", ") || "–";
  const rows = now.switches.map((each) =>
    element(
      "tr",
      { "data-switch": each.name },
      element("td", {}, each.name),
      element("td", { class: each.trouble ? (each.up ? "words" : "bad words") : "good" }, each.trouble || "up"),
      element("td", { class: "words" }, counts(each.outcomes)),
      element("td", { class: Object.keys(each.refused).length ? "warn words" : "words" }, counts(each.refused)),
    ),
  );
  const head = ["switch", "state", "packets of its jobs", "refused, by reason"].map((name) => element("th", { scope: "col" }, name));
  return element("table", {}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows));
}

function drawEvents() {
  const items = happened.toReversed().map((event) => {
    const at = new Date(1000 * event.at);
    return element("li", {}, element("time", { datetime: at.toISOString() }, at.toLocaleTimeString("en-GB")), event.text);
  });
  byId("events").replaceChildren(...(items.length ? items : [element("li", { class: "words" }, "nothing has happened yet")]));
}

// The stream.

// A new drawing of what is there must not take the focus or the scrolling away from the reader.
function redraw(place, ...children) {
  const regions = () => [...place.querySelectorAll("[role=region]")].map((each) => [each.getAttribute("aria-label"), each]);
  const before = new Map(regions());
  const focused = document.activeElement?.getAttribute("aria-label");
  const scrolled = new Map([...before].map(([label, region]) => [label, region.scrollLeft]));
  place.replaceChildren(...children);
  for (const [label, region] of regions()) {
    region.scrollLeft = scrolled.get(label) ?? 0;
    if (before.has(label) && label === focused) region.focus({ preventScroll: true });
  }
}

function show(now) {
  history = [...history, now.point].slice(-keep.history);
  happened = [...happened, ...now.events].slice(-keep.events);
  byId("topology").textContent = now.topology;
  document.title = `netsum ${now.topology}`;
  drawNetwork(now);
  const jobs = now.jobs.map(drawJob);
  redraw(byId("jobs"), ...(jobs.length ? jobs : [element("p", { class: "words" }, "There are no jobs.")]));
  byId("switches").replaceChildren(drawSwitches(now));
  if (now.events.length || !byId("events").childElementCount) drawEvents();
  say(`live, ${new Date(1000 * now.at).toLocaleTimeString("en-GB")}`);
}

function take(name, data) {
  if (name === "before") {
    ({ history, events: happened, keep } = data);
    history.pop(); // the picture that follows is its last point
    drawEvents();
  } else if (name === "picture") show(data);
}

function say(text, lost = false) {
  byId("state").textContent = text;
  byId("state").className = lost ? "lost" : "";
}

async function follow() {
  const token = sessionStorage.getItem(KEEP);
  const answer = await fetch("v1/live", { headers: token ? { Authorization: `Bearer ${token}` } : {} });
  byId("ask").hidden = answer.status !== 401;
  if (!answer.ok) throw new Error((await answer.json()).error);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) throw new Error("the controller has closed the connection");
    const messages = (rest + value).split("\n\n");
    rest = messages.pop();
    for (const message of messages) {
      const found = /^event: (\w+)\ndata: (.*)$/.exec(message);
      if (found) take(found[1], JSON.parse(found[2]));
    }
  }
}

let again = null;

async function run() {
  clearTimeout(again);
  try {
    await follow();
  } catch (error) {
    say(`not live: ${error.message}`, true);
    again = setTimeout(run, 2000);
  }
}

byId("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEEP, byId("token").value);
  byId("token").value = "";
  run();
});

run();
