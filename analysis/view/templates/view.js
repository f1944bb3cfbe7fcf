"use strict";
// Times are nanoseconds since a run's origin. "Shown" time leaves idle stretches out: u = shown(ns).
const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const SHADES = 7;
const GAP_SHARE = 0.01;
const ASK_AGAIN_MS = 1000;
const state = { runs: [], follow: false, cursor: 0, from: 0, to: 1, measure: "use", port: null, path: "", find: "" };

const make = (tag, attributes = {}, text = "") => {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text) element.textContent = text;
  return element;
};
const draw = (tag, attributes) => {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
};
const grouped = (value) => Math.round(value).toLocaleString("en");
const duration = (ns) => ns === null || ns === undefined ? "–"
  : ns < 1e6 ? `${(ns / 1e3).toFixed(ns < 1e4 ? 2 : 1)} µs` : ns < 1e9 ? `${(ns / 1e6).toFixed(3)} ms` : `${(ns / 1e9).toFixed(3)} s`;
const size = (bytes) => bytes < 1e3 ? `${grouped(bytes)} B` : bytes < 1e6 ? `${(bytes / 1e3).toFixed(1)} KB`
  : bytes < 1e9 ? `${(bytes / 1e6).toFixed(1)} MB` : `${(bytes / 1e9).toFixed(2)} GB`;
const percent = (share) => `${share > 0 ? "+" : ""}${(100 * share).toFixed(1)}%`;
const clamp = (value, low, high) => Math.min(high, Math.max(low, value));

// The axis of a run: its stretches one after another, with a small gap between them.
class Axis {
  constructor(stretches) {
    const busy = stretches.reduce((sum, [a, b]) => sum + b - a, 0) || 1;
    const gap = stretches.length > 1 ? busy * GAP_SHARE : 0;
    this.total = busy + gap * (stretches.length - 1);
    let at = 0;
    this.parts = stretches.map(([begin, end]) => {
      const part = { begin, end, u: at / this.total };
      at += end - begin + gap;
      return part;
    });
  }
  shown(ns) {
    let last = 0;
    for (const { begin, end, u } of this.parts) {
      if (ns < begin) return Math.max(last, u - GAP_SHARE / 2);
      last = u + (Math.min(ns, end) - begin) / this.total;
      if (ns <= end) return last;
    }
    return 1;
  }
  time(u) {
    let found = this.parts.length ? this.parts[0].begin : 0;
    for (const { begin, end, u: start } of this.parts) {
      if (u < start) break;
      found = Math.min(end, begin + (u - start) * this.total);
    }
    return found;
  }
}

// The last sample at or before a time; -1 before the first.
const sampleAt = (times, ns) => {
  let low = 0, high = times.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (times[middle] <= ns) low = middle + 1; else high = middle;
  }
  return low - 1;
};
// The bytes that a port had sent by a time: between two samples all of it left in the last interval.
const sentBy = (port, ns) => {
  const i = sampleAt(port.times_ns, ns);
  if (i < 0) return port.sent[0] ?? 0;
  if (i + 1 >= port.times_ns.length) return port.sent[i];
  const begin = port.times_ns[i + 1] - port.interval_ns;
  const share = clamp((ns - begin) / port.interval_ns, 0, 1);
  return port.sent[i] + share * (port.sent[i + 1] - port.sent[i]);
};
const countBy = (port, column, ns) => {
  const i = sampleAt(port.times_ns, ns);
  return i < 0 ? port[column][0] ?? 0 : port[column][i];
};
// A port in a span of time, in the measure's unit. A packet counts as a whole when it begins: a span that is as short as
// some packets would have more than there was time for.
const value = (port, measure, begin, end) => {
  if (!port.times_ns.length) return 0;
  if (measure === "use") return Math.min(1, 8e9 * (sentBy(port, end) - sentBy(port, begin)) / Math.max(1, end - begin) / port.rate_bps);
  if (measure === "marks") return countBy(port, "mark_counts", end) - countBy(port, "mark_counts", begin);
  if (measure === "drops") return countBy(port, "drop_counts", end) - countBy(port, "drop_counts", begin);
  const first = Math.max(0, sampleAt(port.times_ns, begin)), last = sampleAt(port.times_ns, end);
  const column = measure === "queue" ? port.peak : port.paused;
  let most = 0;
  for (let i = first + (port.times_ns[first] <= begin && last > first ? 1 : 0); i <= last; i++) most = Math.max(most, column[i]);
  return measure === "paused" ? Number(most > 0) : most;
};
const WORDS = {
  use: (v) => `${(100 * v).toFixed(0)}% of its rate`,
  queue: (v) => `queue up to ${size(v)}`,
  marks: (v) => `${grouped(v)} marks`,
  drops: (v) => `${grouped(v)} drops`,
  paused: (v) => v ? "paused" : "not paused",
};

const prepare = (document_) => {
  const run = { ...document_, axis: new Axis(document_.stretches_ns) };
  run.byPort = new Map(run.ports.map((port) => [port.port, port]));
  run.byPath = new Map(run.paths.map((path) => [`${path.source}-${path.destination}`, path.ports]));
  run.finest = Math.max(1, ...run.ports.map((port) => port.interval_ns));
  // The largest of each measure in a window, so that colours mean the same at all times.
  run.most = { use: 1, paused: 1 };
  for (const measure of ["queue", "marks", "drops"]) {
    const column = { queue: "peak", marks: "mark_counts", drops: "drop_counts" }[measure];
    let most = 0;
    for (const port of run.ports) {
      port[column].forEach((v, i) => { most = Math.max(most, measure === "queue" ? v : i ? v - port[column][i - 1] : 0); });
    }
    run.most[measure] = most;
  }
  return run;
};
const window_ = (run) => {
  const end = run.axis.time(state.cursor);
  return [end - Math.max(run.finest, run.axis.total / 500), end];
};

// The fabric: two lanes for each link, the right-hand one of who looks along it.
const buildMap = (run, panel) => {
  const places = new Map(run.nodes.map((node) => [node.name, node]));
  const svg = draw("svg", { viewBox: `0 0 1080 ${run.height}`, role: "img" });
  run.lanes = new Map();
  for (const port of run.ports) {
    const a = places.get(port.node), b = places.get(port.peer);
    const length = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const dx = -(b.y - a.y) / length * 1.8, dy = (b.x - a.x) / length * 1.8;
    const lane = draw("line", { x1: a.x + dx, y1: a.y + dy, x2: b.x + dx, y2: b.y + dy, class: "link s0 w0" });
    lane.addEventListener("click", () => { state.port = `${port.node} → ${port.peer}`; $("ports").value = state.port; refresh(); });
    run.lanes.set(port.port, lane);
    svg.append(lane);
  }
  for (const node of run.nodes) {
    const shape = node.switch
      ? draw("rect", { x: node.x - 1.35 * run.radius, y: node.y - 0.8 * run.radius, width: 2.7 * run.radius, height: 1.6 * run.radius, class: "switch" })
      : draw("circle", { cx: node.x, cy: node.y, r: 0.85 * run.radius, class: node.ranks.length ? "host" : "host idle" });
    shape.dataset.tip = node.ranks.length ? `${node.name}: rank ${node.ranks.join(", ")}` : node.name;
    svg.append(shape);
    if (run.radius >= 7) {
      const text = draw("text", { x: node.x, y: node.switch ? node.y - run.radius - 4 : node.y + run.radius + 13, class: "tick mid halo" });
      text.textContent = node.name;
      svg.append(text);
    }
  }
  svg.setAttribute("aria-label", `Fabric of ${run.label}`);
  run.map = svg;
  panel.append(svg);
};
// The bytes of each job's collectives at a port that several shared.
const whose = (port) => Object.entries(port.by_job).map(([job, bytes]) => `\n${job}: ${size(bytes)}`).join("");
const colourMap = (run) => {
  const [begin, end] = window_(run);
  const onPath = new Set(run.byPath.get(state.path) ?? []);
  let busiest = null, highest = 0;
  for (const port of run.ports) {
    const found = value(port, state.measure, begin, end);
    const most = run.most[state.measure];
    const shade = found > 0 && most > 0 ? Math.min(SHADES - 1, 1 + Math.floor((SHADES - 1) * found / most * 0.9999)) : 0;
    const lane = run.lanes.get(port.port);
    lane.setAttribute("class", `link s${shade} w${shade}${onPath.has(port.port) ? " on-path" : ""}${state.port === `${port.node} → ${port.peer}` ? " chosen" : ""}`);
    lane.classList.toggle("shared", Object.keys(port.by_job).length > 0);
    lane.dataset.tip = `${port.node} → ${port.peer}\n${WORDS[state.measure](found)}; in all ${size(port.bytes)}, ${grouped(port.marks)} marks, ${grouped(port.drops)} drops${whose(port)}`;
    if (found > highest) { highest = found; busiest = port; }
  }
  const told = busiest ? `Most at ${busiest.node} → ${busiest.peer}: ${WORDS[state.measure](highest)}.` : `Nothing of this at any port now.`;
  run.map.setAttribute("aria-label", `Fabric of ${run.label} at ${duration(end / run.scale)}. ${told}`);
  run.note.textContent = told;
};

// One port over the shown part of the time: rate above, queue below.
const buildPlot = (run, panel) => {
  run.plot = draw("svg", { viewBox: "0 0 1080 190", role: "img", "aria-label": "No port is chosen." });
  panel.append(run.plot);
};
const drawPlot = (run) => {
  const port = run.ports.find((each) => `${each.node} → ${each.peer}` === state.port);
  run.plot.replaceChildren();
  if (!port) { run.plot.setAttribute("aria-label", "No port is chosen."); return; }
  const left = 70, right = 1070, columns = 500;
  const rates = [], depths = [];
  for (let i = 0; i < columns; i++) {
    const u = state.from + (state.to - state.from) * (i + 1) / columns;
    const begin = run.axis.time(u - (state.to - state.from) / columns), end = run.axis.time(u);
    const wide = Math.max(end - begin, port.interval_ns);
    rates.push(value(port, "use", end - wide, end) * port.rate_bps / 1e9);
    depths.push(value(port, "queue", end - wide, end));
  }
  const panelOf = (values, top, height, most, css, words) => {
    const x = (i) => left + (right - left) * (i + 1) / columns;
    const y = (v) => top + height - height * v / (most || 1);
    run.plot.append(draw("line", { x1: left, x2: right, y1: top + height, y2: top + height, class: "grid" }));
    run.plot.append(draw("line", { x1: left, x2: right, y1: top, y2: top, class: "grid" }));
    run.plot.append(draw("path", { d: values.map((v, i) => `${i ? "L" : "M"}${x(i).toFixed(1)} ${y(v).toFixed(1)}`).join(""), class: `plot ${css}` }));
    for (const [at, text] of [[top + 4, words(most)], [top + height, "0"]]) {
      const label = draw("text", { x: left - 6, y: at, class: "tick end" });
      label.textContent = text;
      run.plot.append(label);
    }
  };
  panelOf(rates, 12, 76, port.rate_bps / 1e9, "rate", (v) => `${v} Gb/s`);
  panelOf(depths, 104, 70, Math.max(...depths), "depth", size);
  const now = (state.cursor - state.from) / (state.to - state.from);
  if (now >= 0 && now <= 1) {
    const x = left + (right - left) * now;
    run.plot.append(draw("line", { x1: x, x2: x, y1: 8, y2: 178, class: "now" }));
  }
  run.plot.setAttribute("aria-label", `${state.port} of ${run.label}: at most ${Math.max(...rates).toFixed(1)} Gb/s of ${port.rate_bps / 1e9}, queue up to ${size(Math.max(...depths))}.`);
};

// Ranks on a canvas: there may be a hundred thousand spans.
const matches = (collective) => !state.find ||
  [collective.id, collective.kind, collective.phase, collective.group].some((word) => word.toLowerCase().includes(state.find));
const buildLanes = (run, panel) => {
  const canvas = make("canvas", { tabindex: "0", role: "img", "aria-label": `Ranks of ${run.label}` });
  run.canvas = canvas;
  panel.append(canvas);
  let drag = null;
  const at = (event) => {
    const box = canvas.getBoundingClientRect();
    return state.from + (state.to - state.from) * clamp((event.clientX - box.left - 58) / (box.width - 66), 0, 1);
  };
  canvas.addEventListener("pointerdown", (event) => { drag = at(event); canvas.setPointerCapture(event.pointerId); });
  canvas.addEventListener("pointerup", (event) => {
    const to = at(event);
    if (drag !== null && Math.abs(to - drag) > 0.004 * (state.to - state.from)) show(Math.min(drag, to), Math.max(drag, to));
    else choosesTime(to);
    drag = null;
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    zoom(event.deltaY > 0 ? 1.25 : 0.8, at(event));
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const step = (state.to - state.from) / 8;
    if (event.key === "+" || event.key === "=") zoom(0.5, state.cursor);
    else if (event.key === "-") zoom(2, state.cursor);
    else if (event.key === "ArrowLeft") show(state.from - step, state.to - step);
    else if (event.key === "ArrowRight") show(state.from + step, state.to + step);
    else return;
    event.preventDefault();
  });
  canvas.addEventListener("pointermove", (event) => {
    const rank = Math.floor((event.clientY - canvas.getBoundingClientRect().top - 4) / run.laneHeight);
    const ns = run.axis.time(at(event));
    const span = (run.ranks[rank] ?? []).find((each) => each.start_ns <= ns && ns <= each.end_ns);
    if (!span) { delete canvas.dataset.tip; return; }
    const took = duration((span.end_ns - span.start_ns) / run.scale);
    canvas.dataset.tip = `rank ${rank}: ${span.name}\n${span.collective === null ? "computes" : "waits"} ${took}`;
  });
};
const drawLanes = (run) => {
  const { canvas } = run, ratio = devicePixelRatio || 1;
  run.laneHeight = clamp(Math.floor(420 / Math.max(1, run.ranks.length)), 4, 16);
  const width = canvas.clientWidth, height = run.laneHeight * run.ranks.length + 8;
  canvas.style.height = `${height}px`;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  pen.scale(ratio, ratio);
  const x = (u) => 58 + (width - 66) * (u - state.from) / (state.to - state.from);
  const phases = [...new Set(run.collectives.map((each) => each.phase))];
  const waited = colour("--other"), computed = colour("--compute");
  pen.font = "11px sans-serif";
  const every = Math.ceil(12 / run.laneHeight);
  run.ranks.forEach((spans, rank) => {
    const y = 4 + rank * run.laneHeight;
    if (rank % every === 0) { pen.fillStyle = colour("--muted"); pen.fillText(`rank ${rank}`, 4, y + Math.min(11, run.laneHeight + 5)); }
    for (const span of spans) {
      const begin = x(run.axis.shown(span.start_ns)), end = x(run.axis.shown(span.end_ns));
      if (end < 58 || begin > width - 8) continue;
      const one = span.collective === null ? null : run.collectives[span.collective];
      pen.fillStyle = one ? colour(`--p${phases.indexOf(one.phase) % 6}`) : span.collective === null ? computed : waited;
      pen.globalAlpha = state.find && !(one && matches(one)) ? 0.15 : 1;
      const from = Math.max(58, begin);
      pen.fillRect(from, y, Math.max(0.7, Math.min(end, width - 8) - from), run.laneHeight - 1);
    }
    pen.globalAlpha = 1;
  });
  const now = x(state.cursor);
  if (now >= 58 && now <= width - 8) { pen.fillStyle = colour("--ink"); pen.fillRect(now, 0, 1, height); }
  const waiting = run.ranks.flat().filter((each) => each.collective !== null).reduce((sum, each) => sum + each.end_ns - each.start_ns, 0);
  const all = run.ranks.flat().reduce((sum, each) => sum + each.end_ns - each.start_ns, 0) || 1;
  canvas.setAttribute("aria-label", `Timeline of ${run.ranks.length} ranks of ${run.label}: they wait for collectives ${(100 * waiting / all).toFixed(0)}% of the time shown here.`);
};

const buildTable = () => {
  const [run] = state.runs, table = $("rows");
  const predictor = Object.keys(run.collectives[0]?.predicted ?? {})[0];
  const header = make("tr");
  for (const word of ["collective", "kind", "iteration", "size", "measured", ...(predictor ? [predictor, "error"] : [])]) {
    header.append(make("th", word === "collective" || word === "kind" ? {} : { class: "number" }, word));
  }
  const body = make("tbody");
  for (const one of run.collectives) {
    const row = make("tr", { tabindex: "0" }), predicted = one.predicted[predictor];
    const cells = [one.id, one.kind, one.iteration, size(one.size_bytes), duration(one.duration_ns)];
    if (predictor) cells.push(duration(predicted), predicted ? percent(predicted / one.duration_ns - 1) : "–");
    cells.forEach((text, i) => row.append(make("td", i < 2 ? {} : { class: "number" }, String(text))));
    const go = () => { const a = run.axis.shown(one.start_ns), b = run.axis.shown(one.end_ns); show(a - 0.1 * (b - a), b + 0.1 * (b - a)); choosesTime(b); drawChunks(run, one); };
    row.addEventListener("click", go);
    row.addEventListener("keydown", (event) => { if (event.key === "Enter") go(); });
    row.dataset.index = run.collectives.indexOf(one);
    body.append(row);
  }
  table.replaceChildren(make("thead"), body);
  table.tHead.append(header);
  $("collectives-caption").textContent = run.collectives.length ? `${run.collectives.length} collectives of ${run.label}, from first post to last end. A row is a way to its time${run.collectives.some((each) => each.phases.length) ? ", and to its chunks by dimension" : ""}.` : run.progress ? "No collectives so far." : "The run had no collectives.";
};

// The chunks of a collective that ran as a program: a lane each, its phases coloured by dimension.
const MOST_LANES = 64;
const drawChunks = (run, one) => {
  $("chunks").hidden = !one.phases.length;
  if (!one.phases.length) return;
  const numbers = [...new Set(one.phases.map((phase) => phase.chunk))].sort((a, b) => a - b), shown = numbers.slice(0, MOST_LANES);
  const kinds = [...new Set(one.phases.map((phase) => phase.dimension))].sort((a, b) => (a ?? -1) - (b ?? -1));
  const words = (dimension) => dimension === null ? "no dimension" : `dimension ${dimension}`;
  const busy = (dimension) => { // the time in which some chunk has a phase along it
    let total = 0, until = -Infinity;
    for (const phase of one.phases.filter((each) => each.dimension === dimension).sort((a, b) => a.start_ns - b.start_ns)) {
      total += Math.max(0, phase.end_ns - Math.max(until, phase.start_ns));
      until = Math.max(until, phase.end_ns);
    }
    return total;
  };
  const from = Math.min(one.start_ns, ...one.phases.map((phase) => phase.start_ns)), to = Math.max(one.end_ns, ...one.phases.map((phase) => phase.end_ns));
  const left = 70, right = 1070, height = shown.length > 16 ? 9 : 18, x = (ns) => left + (right - left) * (ns - from) / Math.max(1, to - from);
  const told = kinds.map((kind) => `${words(kind)} in use ${(100 * busy(kind) / Math.max(1, to - from)).toFixed(0)}% of the time`).join(", ");
  const picture = draw("svg", { viewBox: `0 0 1080 ${shown.length * height + 12}`, role: "img", "aria-label": `${numbers.length} chunks of ${one.id}: ${told}.` });
  shown.forEach((number, lane) => {
    const y = 4 + lane * height;
    if (lane % Math.ceil(14 / height) === 0) {
      const label = draw("text", { x: left - 6, y: y + height - 3, class: "tick end" });
      label.textContent = `chunk ${number}`;
      picture.append(label);
    }
    for (const phase of one.phases.filter((each) => each.chunk === number)) {
      const bar = draw("rect", { x: x(phase.start_ns), y, width: Math.max(0.7, x(phase.end_ns) - x(phase.start_ns)), height: height - 2, class: `p${kinds.indexOf(phase.dimension) % 6}` });
      bar.dataset.tip = `chunk ${number}, ${phase.name}, ${words(phase.dimension)}\n${duration((phase.end_ns - phase.start_ns) / run.scale)}, from ${duration((phase.start_ns - from) / run.scale)} on`;
      picture.append(bar);
    }
  });
  const kept = numbers.length > shown.length ? ` The first ${shown.length} are drawn.` : "";
  $("chunks-caption").textContent = `${one.id} in ${numbers.length} ${numbers.length === 1 ? "chunk" : "chunks"}, each phase from its first rank's begin to its last one's end: ${told}.${kept}`;
  $("dimensions").replaceChildren(...kinds.map((kind, i) => legendItem(`p${i % 6}`, words(kind))));
  $("phases-of-chunks").replaceChildren(picture);
};

// Two runs: which keys of the spec differ, which collectives changed most, and the ports that did.
const buildDifferences = () => {
  const [a, b] = state.runs;
  $("differences").hidden = !b;
  if (!b) return;
  const body = make("tbody"), keys = [...new Set([...Object.keys(a.spec), ...Object.keys(b.spec)])];
  const add = (what, one, other, change = "", css = "") => {
    const row = make("tr");
    for (const text of [what, one, other]) row.append(make("td", {}, text));
    row.append(make("td", { class: `number ${css}` }, change));
    body.append(row);
  };
  const changed = keys.filter((key) => a.spec[key] !== b.spec[key] && key !== "name");
  for (const key of changed.slice(0, 20)) add(key, a.spec[key] ?? "–", b.spec[key] ?? "–");
  const key = (one) => `${one.group} ${one.id}`, others = new Map(b.collectives.map((one) => [key(one), one]));
  const pairs = a.collectives.filter((one) => others.has(key(one))).map((one) => [one, others.get(key(one))]);
  pairs.sort((x, y) => Math.abs(y[1].duration_ns - y[0].duration_ns) - Math.abs(x[1].duration_ns - x[0].duration_ns));
  for (const [one, other] of pairs.slice(0, 12)) {
    const share = other.duration_ns / one.duration_ns - 1;
    add(`${one.id} (${one.kind})`, duration(one.duration_ns), duration(other.duration_ns), percent(share), share > 0 ? "worse" : "better");
  }
  for (const [column, words] of [["bytes", size], ["marks", grouped], ["drops", grouped], ["pauses", grouped]]) {
    const ports = a.ports.filter((port) => b.byPort.has(port.port) && b.byPort.get(port.port).peer === port.peer)
      .map((port) => [port, b.byPort.get(port.port)]).filter(([one, other]) => one[column] !== other[column]);
    ports.sort((x, y) => Math.abs(y[1][column] - y[0][column]) - Math.abs(x[1][column] - x[0][column]));
    for (const [one, other] of ports.slice(0, 4)) add(`${column} at ${one.node} → ${one.peer}`, words(one[column]), words(other[column]), one[column] ? percent(other[column] / one[column] - 1) : "");
  }
  const header = make("tr");
  for (const word of ["", a.label, b.label, "change"]) header.append(make("th", {}, word));
  $("changes").replaceChildren(make("thead"), body);
  $("changes").tHead.append(header);
  const slower = pairs.filter(([one, other]) => other.duration_ns > one.duration_ns).length;
  $("differences-caption").textContent = `Keys of the spec that differ: ${changed.length}. ${pairs.length} collectives are in both runs; ${slower} take longer in ${b.label}. Keys first, then collectives, then ports, by size of the change.`;
};

// An entry of a legend.
const legendItem = (css, words) => {
  const item = make("li"), svg = draw("svg", { viewBox: "0 0 12 12", "aria-hidden": "true" });
  svg.append(draw("rect", { width: 12, height: 12, class: css }));
  item.append(svg, words);
  return item;
};

// Everything that hangs on the state, once for each picture that the browser draws.
const paint = () => {
  const [run] = state.runs;
  if (!run) return;
  $("now").textContent = duration(run.axis.time(state.cursor) / run.scale);
  $("cursor").setAttribute("aria-valuetext", $("now").textContent);
  for (const each of state.runs) { colourMap(each); drawPlot(each); drawLanes(each); }
  const chosen = run.ports.find((port) => `${port.node} → ${port.peer}` === state.port);
  $("port-caption").textContent = chosen ? `${state.port}: what it sent, and the most that waited there.${whose(chosen) ? ` Collectives of jobs, in bytes: ${whose(chosen).trim().replaceAll("\n", ", ")}.` : ""}` : "Choose a link of the fabric, or a port here.";
  const most = run.most[state.measure];
  $("legend").replaceChildren(...Array.from({ length: SHADES }, (_, i) => {
    const bound = most * i / (SHADES - 1);
    const words = state.measure === "use" ? `${Math.round(100 * bound)}%` : state.measure === "queue" ? size(bound) : grouped(bound);
    return legendItem(`s${i}`, i ? `to ${words}` : "none");
  }));
  for (const row of $("rows").tBodies[0]?.rows ?? []) row.classList.toggle("dim", !matches(run.collectives[row.dataset.index]));
};
let pending = false;
const refresh = () => {
  if (pending) return;
  pending = true;
  requestAnimationFrame(() => { pending = false; paint(); });
};
const setCursor = (u) => { state.cursor = clamp(u, 0, 1); $("cursor").value = Math.round(1000 * state.cursor); refresh(); };
const choosesTime = (u) => { state.follow = false; setCursor(u); };
const show = (from, to) => {
  const wide = clamp(to - from, 1e-5, 1);
  state.from = clamp(from, 0, 1 - wide);
  state.to = state.from + wide;
  refresh();
};
const zoom = (factor, around) => show(around - (around - state.from) * factor, around + (state.to - around) * factor);

const fill = (select, words, first) => { select.replaceChildren(...first, ...words.map((word) => make("option", { value: word[0] }, word[1]))); };
// The ports that carried something, deepest queue first. A list that has all of them stays.
const fillPorts = (run) => {
  const sampled = run.ports.filter((port) => port.times_ns.length);
  if (sampled.length === $("ports").options.length && state.port) return;
  const deepest = new Map(sampled.map((port) => [port, port.peak.reduce((a, b) => Math.max(a, b), 0)]));
  const names = sampled.sort((a, b) => deepest.get(b) - deepest.get(a)).map((port) => `${port.node} → ${port.peer}`);
  fill($("ports"), names.map((name) => [name, name]), []);
  if (!names.includes(state.port)) state.port = names[0] ?? null;
  if (state.port) $("ports").value = state.port;
};
const tellNotes = (run) => { $("fabric-caption").textContent = ["Each link has two lanes, one for each direction, coloured by what it did up to the chosen time.", ...(run.ports.some((port) => Object.keys(port.by_job).length) ? ["Thick lanes carried collectives of several jobs; the port's own words say how many bytes of each."] : []), ...run.notes].join(" "); };
const tellPhases = (run) => {
  const phases = [...new Set(run.collectives.map((each) => each.phase))];
  $("phases").replaceChildren(legendItem("compute", "computes"), ...phases.map((phase, i) => legendItem(`p${i % 6}`, `waits: ${phase.replaceAll("_", " ") || "collective"}`)));
};
// Specs have the names that people know; where a run lies stands beside its verdict.
const tellTitle = () => {
  const names = [...new Set(state.runs.map((run) => run.name))].slice(0, 4).join(" · ");
  $("title").textContent = names;
  document.title = `${names} – Groundwire view`;
};
const build = () => {
  const [run] = state.runs;
  tellTitle();
  for (const id of ["maps", "plots", "lanes"]) $(id).replaceChildren();
  for (const each of state.runs) {
    for (const [id, builder] of [["maps", buildMap], ["plots", buildPlot], ["lanes", buildLanes]]) {
      const panel = make("figure");
      panel.append(make("figcaption", {}, state.runs.length > 1 ? each.label : ""));
      builder(each, panel);
      if (id === "maps") { each.note = make("p", { class: "note", "aria-live": "off" }); panel.append(each.note); }
      $(id).append(panel);
    }
  }
  fill($("path"), run.paths.map((p) => [`${p.source}-${p.destination}`, `rank ${p.source} → ${p.destination}`]), [make("option", { value: "" }, "none")]);
  $("path").value = run.byPath.has(state.path) ? state.path : "";
  fillPorts(run);
  tellNotes(run);
  tellPhases(run);
  buildTable();
  $("chunks").hidden = true;
  buildDifferences();
  setCursor(state.cursor || run.axis.shown(run.collectives[0]?.end_ns ?? run.axis.time(0.5)));
};

// Null while a run has not begun.
const load = async (number) => {
  if (DOCUMENTS) return prepare(DOCUMENTS[number]);
  const answer = await fetch(`runs/${number}.json`);
  if (!answer.ok) throw new Error(await answer.text());
  const found = await answer.json();
  return found && prepare(found);
};
const chosen = [0, LABELS.length === 2 ? 1 : -1];
const choose = async () => {
  const began = performance.now();
  let loaded;
  try {
    loaded = await Promise.all(chosen.filter((number) => number >= 0).map(load));
  } catch (error) {
    const gone = $("live").hidden ? error.message : "The run has ended, and its page with it: the terminal says how.";
    $("live").hidden = true;
    $("runs").append(make("p", { class: "verdict invalid" }, gone));
    return;
  }
  const runs = loaded.filter(Boolean);
  showProgress(loaded);
  if (runs.length && runs.every((run, i) => run.progress && state.runs[i]?.progress)) update(runs);
  else if (runs.length) {
    if (state.follow) state.cursor = 0; // of a run that is done: as in a page that is opened then
    state.follow = Boolean(runs[0].progress);
    state.runs = runs;
    buildRuns();
    build();
    if (state.follow) setCursor(1);
  }
  if (!loaded.every((run) => run && !run.progress)) setTimeout(choose, Math.max(ASK_AGAIN_MS, 4 * (performance.now() - began)));
};
// How far the run is that goes on.
const showProgress = ([run]) => {
  const told = run ? run.progress : { words: "the run begins", over: [] };
  $("live").hidden = !told;
  if (!told) return;
  if ($("doing").textContent !== told.words) $("doing").textContent = told.words;
  const { iteration, iterations, clock_ns, sent_bytes, over } = told;
  if (iterations && iteration !== null) { $("done").max = iterations; $("done").value = iteration; } else $("done").removeAttribute("value");
  const counts = [];
  if (clock_ns) counts.push(`${(clock_ns / 1e9).toFixed(6)} s on its clock`);
  if (over.length) {
    const least = Math.min(...over), most = Math.max(...over);
    counts.push(least === most ? `${grouped(least)} ${told.operations} done by every rank` : `${grouped(least)} ${told.operations} done by every rank, ${grouped(most)} by some`);
  }
  if (sent_bytes) counts.push(`${size(sent_bytes)} sent by all ports`);
  if (told.wall_s) counts.push(`${told.wall_s.toFixed(0)} s since it began`);
  $("counts").textContent = counts.join("; ");
};
// A run goes on: the drawings stay, what they show is new, and times that a reader chose stay those.
const update = (runs) => {
  const { axis } = state.runs[0], [cursor, from, to] = [state.cursor, state.from, state.to].map((u) => axis.time(u));
  const whole = state.from === 0 && state.to === 1, row = document.activeElement?.dataset?.index;
  runs.forEach((next, i) => Object.assign(state.runs[i], next));
  const now = state.runs[0].axis;
  if (!whole) show(now.shown(from), now.shown(to));
  tellNotes(state.runs[0]);
  tellPhases(state.runs[0]);
  fillPorts(state.runs[0]);
  buildTable();
  if (row !== undefined) document.querySelector(`#rows [data-index="${row}"]`)?.focus();
  setCursor(state.follow ? 1 : now.shown(cursor));
};
const buildRuns = () => {
  const parts = [];
  if (LABELS.length > 1) {
    const bar = make("div", { class: "choose" });
    ["Run", "beside"].forEach((word, side) => {
      const label = make("label", {}, `${word} `), select = make("select", { "aria-label": word });
      if (side) select.append(make("option", { value: -1 }, "none"));
      LABELS.forEach((name, number) => select.append(make("option", { value: number }, name)));
      select.value = chosen[side];
      select.addEventListener("change", () => { chosen[side] = Number(select.value); choose(); });
      label.append(select);
      bar.append(label);
    });
    parts.push(bar);
  }
  for (const run of state.runs.filter((each) => !each.progress)) {
    const line = make("p", { class: `verdict ${run.valid ? "valid" : "invalid"}` });
    line.append(make("b", {}, run.valid ? "VALID" : "NOT VALID"), `${run.label}: ${run.kernel} kernel, ${run.ranks.length} ranks, ${run.nodes.length} nodes, ${run.collectives.length} collectives`);
    parts.push(line);
    for (const reason of run.reasons) parts.push(make("p", { class: "note" }, reason));
  }
  $("runs").replaceChildren(...parts);
};

$("cursor").addEventListener("input", () => { state.follow = false; state.cursor = $("cursor").value / 1000; refresh(); });
$("measure").addEventListener("change", () => { state.measure = $("measure").value; refresh(); });
$("path").addEventListener("change", () => { state.path = $("path").value; refresh(); });
$("ports").addEventListener("change", () => { state.port = $("ports").value; refresh(); });
$("find").addEventListener("input", () => { state.find = $("find").value.trim().toLowerCase(); refresh(); });
$("whole").addEventListener("click", () => show(0, 1));
let playing = 0;
$("play").addEventListener("click", () => {
  state.follow = false;
  if (playing) { clearInterval(playing); playing = 0; }
  else playing = setInterval(() => {
    const next = state.cursor + (state.to - state.from) / 400;
    setCursor(next > state.to || next < state.from ? state.from : next);
  }, 40);
  $("play").textContent = playing ? "Stop" : "Play";
  $("play").setAttribute("aria-pressed", String(Boolean(playing)));
});
const tip = $("tip");
document.addEventListener("pointermove", (event) => {
  const mark = event.target.closest?.("[data-tip]");
  tip.hidden = !mark;
  if (!mark) return;
  tip.textContent = mark.dataset.tip;
  const { width, height } = tip.getBoundingClientRect();
  tip.style.left = `${Math.max(8, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  tip.style.top = `${event.clientY + height + 24 > innerHeight ? event.clientY - height - 12 : event.clientY + 16}px`;
});
addEventListener("resize", refresh);
choose();
