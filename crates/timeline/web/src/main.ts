// The page: joins connection, model and drawing, and handles mouse and keyboard.

import { Connection } from "./connection";
import { count, dayAndTime, duration, time } from "./format";
import { Histogram } from "./histogram";
import { type Key, listenForKeys } from "./keys";
import { Model, trackName } from "./model";
import { Panel } from "./panel";
import { FoundRow, Kind, ServerMessage, hasDuration, parseFrame } from "./protocol";
import { Requests } from "./requests";
import { applyTheme, toggleTheme } from "./theme";
import { gutter, RULER, Shown, Timeline } from "./timeline";
import { FIRST_SPAN, Viewport } from "./viewport";

const REQUEST_INTERVAL_MS = 40;
const FRAGMENT_INTERVAL_MS = 300;
/** Part of the view by which a key pans. */
const PAN_STEP = 0.15;
const ZOOM_STEP = 1.5;

function element<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

const model = new Model();
const viewport = new Viewport();
viewport.readFragment(location.hash);
let theme = applyTheme();
const canvas = element<HTMLCanvasElement>("timeline");
const timeline = new Timeline(canvas, model, viewport, theme);
const histogramCanvas = element<HTMLCanvasElement>("histogram");
const histogram = new Histogram(histogramCanvas, model, viewport, theme);

let isConnected = false;
let isDirty = true;
let requests = 0;
let lastRequest = "";
let lastRequestAt = 0;
let frames = 0;
let frameAt = 0;
/** The end of the latest frame. */
let frameEdge: bigint | null = null;
/** When the page was drawn, over the last second. */
let drawnAt: number[] = [];
/** How often it was drawn, and the milliseconds that this took. */
let drawn = { times: 0, ms: 0 };
/** The expression of the filter; empty: none. */
let filter = new URLSearchParams(location.hash.slice(1)).get("filter") ?? "";
/** The range of the link, until the first events are there. */
let linkedRange = new URLSearchParams(location.hash.slice(1)).get("range");
/** Why the expression is invalid; empty: it is valid. */
let filterError = "";
let isFilterAnswered = false;
let eventRate = 0;
let rateFrom: { at: number; events: number } | null = null;

const connection = new Connection({
  opened() {
    isConnected = true;
    lastRequest = "";
    model.reset();
    timeline.forgetColors();
    panel.askAgain();
    if (filter !== "") {
      applyFilter(filter);
    }
    isDirty = true;
  },
  lost() {
    isConnected = false;
    asked.reset();
    panel.connectionLost();
    isDirty = true;
  },
  text(text) {
    const message = JSON.parse(text) as ServerMessage;
    if (message.type !== "state") {
      asked.handle(message);
      return;
    }
    model.applyState(message, performance.now());
    if (message.tracks.length > 0) {
      timeline.forgetColors();
    }
    showWholeRecording();
    showLinkedRange();
    showFilterResult();
    panel.stateChanged();
    updateRate();
    isDirty = true;
  },
  binary(buffer) {
    const frame = parseFrame(buffer);
    frameAt = performance.now();
    model.applyFrame(frame, frameAt);
    frames = frame.frame;
    frameEdge = frame.to;
    connection.send({ type: "ack", frame: frame.frame });
    isDirty = true;
  },
});

const asked = new Requests(connection);
const panel = new Panel(model, timeline, viewport, asked, {
  filter: () => filter,
  setFilter(text) {
    element<HTMLInputElement>("filter-text").value = text;
    applyFilter(text);
  },
  show: showFound,
  showEnd(end) {
    const [time, half] = [BigInt(end.time), BigInt(Math.round(viewport.span / 2))];
    viewport.show(time - half, time + half);
    timeline.reveal(end.track, 0);
    isDirty = true;
  },
  changed: () => (isDirty = true),
});

/** Of what is not live, all is shown at first. */
function showWholeRecording(): void {
  const edge = model.edgeNow(performance.now());
  if (!viewport.isChosen && !model.isLive && edge !== null && model.first !== null) {
    showAll();
    viewport.isChosen = false;
  } else if (!viewport.isChosen && model.isLive && !viewport.isFollowing) {
    viewport.isFollowing = true;
    viewport.span = FIRST_SPAN;
  }
}

/** A range that the link contains is shown when there is something in it. */
function showLinkedRange(): void {
  if (linkedRange === null || model.first === null) {
    return;
  }
  const parts = /^(-?\d{1,19})-(-?\d{1,19})$/.exec(linkedRange);
  linkedRange = null;
  if (parts !== null && BigInt(parts[1]!) < BigInt(parts[2]!)) {
    panel.showRange({ from: BigInt(parts[1]!), to: BigInt(parts[2]!) });
  }
}

function showAll(): void {
  const edge = model.edgeNow(performance.now());
  const first = model.first;
  if (edge === null || first === null) {
    return;
  }
  const margin = (edge - first) / 50n + 10n;
  viewport.show(first - margin, edge + margin);
}

function updateRate(): void {
  const now = performance.now();
  const events = model.sessions.reduce((sum, session) => sum + session.events, 0);
  if (rateFrom === null || events < rateFrom.events) {
    rateFrom = { at: now, events };
  } else if (now - rateFrom.at >= 1000) {
    eventRate = ((events - rateFrom.events) * 1000) / (now - rateFrom.at);
    rateFrom = { at: now, events };
  }
}

function requestView(now: number): void {
  if (!isConnected || now - lastRequestAt < REQUEST_INTERVAL_MS) {
    return;
  }
  const isFollowing = viewport.isFollowing;
  const request = {
    from: isFollowing ? "0" : viewport.from.toString(),
    to: isFollowing ? Math.round(viewport.span).toString() : viewport.to.toString(),
    isFollowing,
    width: Math.min(16_384, Math.max(1, Math.round(timeline.plotWidth))),
    tracks: timeline.visibleTracks(),
    countsRows: model.countsRows,
  };
  const text = JSON.stringify(request);
  if (text !== lastRequest) {
    lastRequest = text;
    lastRequestAt = now;
    requests += 1;
    connection.send({ type: "view", number: requests, ...request });
  }
}

function draw(now: number): void {
  requestAnimationFrame(draw);
  const hasResized = [timeline.resize(), histogram.resize()].some((resized) => resized);
  const isMoving = viewport.isFollowing && model.isLive && isConnected;
  if (isMoving) {
    const edge = frameEdge === null ? null : frameEdge + BigInt(Math.round((now - frameAt) * 1e6));
    const present = model.edgeNow(now);
    // The clock of the page runs on between frames, but not far: what is not known is not shown as empty.
    const shown = edge !== null && now - frameAt < 500 ? edge : present;
    viewport.follow(shown ?? viewport.to);
  } else if (viewport.isFollowing && model.edgeNow(now) !== null) {
    viewport.follow(model.edgeNow(now)!);
  }
  requestView(now);
  panel.update(now);
  if (!isDirty && !hasResized && !isMoving) {
    return;
  }
  isDirty = false;
  const begun = performance.now();
  timeline.clampScroll();
  timeline.draw();
  histogram.draw();
  updateTexts(now);
  drawn = { times: drawn.times + 1, ms: drawn.ms + performance.now() - begun };
  drawnAt.push(now);
  drawnAt = drawnAt.filter((at) => now - at <= 1000);
}

function setText(id: string, text: string): void {
  const output = element(id);
  if (output.textContent !== text) {
    output.textContent = text;
  }
}

function updateTexts(now: number): void {
  setText("range", `${dayAndTime(viewport.from)}  +  ${duration(viewport.span)}`);
  const lag = model.lagNow(now);
  setText("lag", lag === null ? "" : `latest event ${duration(lag * 1e6)} ago`);
  setText("rate", model.isLive ? `${count(eventRate)} events/s` : "");
  setText("kept", `${count(model.kept)} rows kept`);
  const badge = element<HTMLOutputElement>("connection");
  badge.hidden = isConnected;
  setText("connection", isConnected ? "" : "not connected");
  element("empty").hidden = model.lanes.length > 0;
  const follow = element("follow");
  follow.setAttribute("aria-pressed", String(viewport.isFollowing));
}

function toggleFollow(): void {
  viewport.isFollowing = !viewport.isFollowing;
  viewport.isChosen = true;
  isDirty = true;
}

// Where the mouse was pressed, and what was shown then.
let drag: { x: number; y: number; from: bigint; scroll: number; hasMoved: boolean; isRange: boolean } | null = null;

canvas.addEventListener("pointerdown", (event) => {
  if (event.button === 0 && event.offsetX >= gutter) {
    canvas.setPointerCapture(event.pointerId);
    const { offsetX: x, offsetY: y } = event;
    const isRange = event.shiftKey || y < RULER;
    drag = { x, y, from: viewport.from, scroll: timeline.scroll, hasMoved: false, isRange };
    if (isRange && viewport.isFollowing) {
      viewport.pan(0);
    }
  }
});

canvas.addEventListener("pointermove", (event) => {
  const { offsetX: x, offsetY: y } = event;
  if (drag === null) {
    showHover(timeline.rowAt(x, y));
    return;
  }
  if (!drag.hasMoved && Math.abs(x - drag.x) + Math.abs(y - drag.y) < 4) {
    return;
  }
  if (!drag.hasMoved && viewport.isFollowing && Math.abs(x - drag.x) >= 2) {
    drag.from = viewport.from;
    viewport.pan(0);
  }
  drag.hasMoved = true;
  if (drag.isRange) {
    const [one, other] = [timeline.timeAt(Math.max(gutter, drag.x)), timeline.timeAt(Math.max(gutter, x))];
    timeline.range = one < other ? { from: one, to: other } : { from: other, to: one };
    isDirty = true;
    return;
  }
  timeline.scroll = drag.scroll - (y - drag.y);
  if (!viewport.isFollowing) {
    const moved = ((drag.x - x) / timeline.plotWidth) * viewport.span;
    viewport.from = drag.from + BigInt(Math.round(moved));
  }
  isDirty = true;
});

canvas.addEventListener("pointerup", (event) => {
  const wasClick = drag !== null && !drag.hasMoved;
  const wasRange = drag?.isRange === true && drag.hasMoved;
  drag = null;
  if (wasRange && timeline.range !== null) {
    panel.showRange(timeline.range);
  } else if (wasClick) {
    select(timeline.rowAt(event.offsetX, event.offsetY));
  } else if (event.offsetX < gutter) {
    const lane = timeline.laneAt(event.offsetY);
    if (lane !== null && lane.key !== "") {
      model.toggle(lane);
      isDirty = true;
    }
  }
});

canvas.addEventListener(
  "wheel",
  (event) => {
    event.preventDefault();
    const size = event.deltaMode === 0 ? 1 : 20;
    if (event.ctrlKey || event.metaKey || (event.offsetX >= gutter && !event.shiftKey && event.altKey)) {
      const at = (event.offsetX - gutter) / timeline.plotWidth;
      viewport.zoom(1.0015 ** (event.deltaY * size), Math.min(1, Math.max(0, at)));
    } else if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
      const delta = (event.deltaX || event.deltaY) * size;
      viewport.pan((delta / timeline.plotWidth) * viewport.span);
    } else {
      timeline.scroll += event.deltaY * size;
    }
    isDirty = true;
  },
  { passive: false },
);

canvas.addEventListener("dblclick", (event) => {
  const shown = timeline.rowAt(event.offsetX, event.offsetY);
  if (shown !== null && hasDuration(shown.rows.kind(shown.at))) {
    const [begin, end] = times(shown);
    if (end !== null) {
      const margin = (end - begin) / 10n + 5n;
      viewport.show(begin - margin, end + margin);
      isDirty = true;
    }
  }
});

function moveToHistogram(event: PointerEvent): void {
  const at = histogram.timeAt(event.offsetX);
  if (at !== null && event.buttons === 1) {
    const half = BigInt(Math.round(viewport.span / 2));
    viewport.show(at - half, at + half);
    isDirty = true;
  }
}
histogramCanvas.addEventListener("pointerdown", moveToHistogram);
histogramCanvas.addEventListener("pointermove", moveToHistogram);

/** Begin and end of a row; the end is absent while it is not known. */
function times(shown: Shown): [bigint, bigint | null] {
  const { rows, at } = shown;
  const begin = rows.from + BigInt(Math.round(rows.start(at)));
  const isCounter = rows.kind(at) === Kind.Counter;
  const end = isCounter ? rows.start(at) : rows.end(at);
  return [begin, Number.isFinite(end) ? rows.from + BigInt(Math.round(end)) : null];
}

function describe(shown: Shown): string {
  const { rows, at } = shown;
  const name = model.name(rows.name(at));
  const merged = rows.count(at) > 1 ? `${rows.count(at)} events, the longest is ` : "";
  switch (rows.kind(at)) {
    case Kind.Span:
    case Kind.State:
      return `${merged}${name}  ·  ${duration(rows.end(at) - rows.start(at))}`;
    case Kind.Counter:
      return `${name}  ·  ${rows.end(at)}`;
    default:
      return `${merged}${name}`;
  }
}

function showHover(shown: Shown | null): void {
  const track = shown === null ? undefined : model.tracks.get(shown.track);
  const where = track === undefined ? "" : trackName(track);
  setText("hover", shown === null ? "" : [describe(shown), time(times(shown)[0]), where].filter(Boolean).join("  ·  "));
}

function select(shown: Shown | null): void {
  if (shown === null) {
    panel.close();
    return;
  }
  const { rows, at, track } = shown;
  const [begin, end] = times(shown);
  panel.showEvent({
    track,
    row: rows.row(at),
    name: model.name(rows.name(at)),
    kind: rows.kind(at),
    begin,
    end,
    value: rows.end(at),
    count: rows.count(at),
    depth: rows.depth(at),
  });
}

function find(isBackward: boolean): void {
  const text = element<HTMLInputElement>("search-text").value;
  timeline.searched = text;
  isDirty = true;
  if (text === "") {
    setText("search-result", "");
    return;
  }
  const middle = viewport.from + BigInt(Math.round(viewport.span / 2));
  const from = lastFound?.text === text ? lastFound.begin : middle;
  asked.search(text, false, from, isBackward, (reply) => {
    const places = `${reply.total.toLocaleString("en")} found`;
    const end = isBackward ? "none before" : "none after";
    setText("search-result", reply.total === 0 ? "none" : reply.found === null ? end : places);
    if (reply.found !== null) {
      lastFound = { text, begin: BigInt(reply.found.begin) };
      showFound(reply.found);
      panel.listFound(text, reply);
    }
  });
}

/** Goes to the next span of the name of the one that is shown, or to the one before. */
function findSameName(isBackward: boolean): void {
  const event = panel.event;
  if (event !== null) {
    asked.search(event.name, true, event.begin, isBackward, (reply) => {
      if (reply.found !== null) {
        showFound(reply.found);
      }
    });
  }
}

let lastFound: { text: string; begin: bigint } | null = null;

function showFound(found: FoundRow): void {
  const begin = BigInt(found.begin);
  const end = found.end === null ? begin : BigInt(found.end);
  // What is in view already does not move, nor do the tables of what is in view.
  if (begin >= viewport.from && end <= viewport.to) {
    viewport.show(viewport.from, viewport.to);
  } else {
    const half = BigInt(Math.round(viewport.span / 2));
    const isLong = Number(end - begin) > viewport.span;
    const middle = isLong ? begin + half / 2n : (begin + end) / 2n;
    viewport.show(middle - half, middle + half);
  }
  panel.showEvent({
    track: found.track,
    row: found.row,
    name: model.name(found.name),
    kind: found.kind,
    begin,
    end: found.end === null ? null : end,
    value: found.value ?? NaN,
    count: 1,
    depth: found.depth,
  });
}

function applyFilter(text: string): void {
  filter = text.trim();
  asked.filter(filter, (reply) => {
    filterError = reply.error;
    // What the server says of names is of the filter before.
    model.filterHint = "";
    isFilterAnswered = true;
    showFilterResult();
    panel.askAgain();
  });
}

/** Shows what is wrong with the filter, or which of its names no event has. */
function showFilterResult(): void {
  if (!isFilterAnswered) {
    return;
  }
  const wrong = filterError !== "" ? filterError : filter === "" ? "" : model.filterHint;
  const result = element("filter-result");
  result.classList.toggle("wrong", wrong !== "");
  setText("filter-result", wrong !== "" ? wrong : filter === "" ? "" : "applied");
  result.title = wrong;
}

function onClick(id: string, action: () => void): void {
  element(id).addEventListener("click", () => {
    action();
    isDirty = true;
  });
}

function changeTheme(): void {
  toggleTheme();
  theme = applyTheme();
  [timeline.theme, histogram.theme] = [theme, theme];
  panel.themeChanged();
}

/** Zooms to what is selected, with room around it. */
function fitSelection(): void {
  const { event } = panel;
  const selected = timeline.range ?? (event === null ? null : { from: event.begin, to: event.end ?? event.begin });
  if (selected !== null) {
    const margin = (selected.to - selected.from) / 10n + 5n;
    viewport.show(selected.from - margin, selected.to + margin);
  }
}

/** Selects the range of the span that is shown, or what is in view. */
function markRange(): void {
  const { event } = panel;
  const isSpan = event !== null && event.end !== null && event.end > event.begin;
  panel.showRange(isSpan ? { from: event.begin, to: event.end! } : { from: viewport.from, to: viewport.to });
}

function showHelp(): void {
  element<HTMLDialogElement>("help").showModal();
}

onClick("follow", toggleFollow);
onClick("all", showAll);
onClick("in", () => viewport.zoom(1 / ZOOM_STEP, 0.5));
onClick("out", () => viewport.zoom(ZOOM_STEP, 0.5));
onClick("theme", changeTheme);
onClick("summary", () => panel.showView());
onClick("tracks", () => panel.showTracks());
onClick("help-open", showHelp);
onClick("help-close", () => element<HTMLDialogElement>("help").close());
onClick("panel-close", () => panel.close());
onClick("zoom-range", () => {
  if (timeline.range !== null) {
    viewport.show(timeline.range.from, timeline.range.to);
  }
});
onClick("search-previous", () => find(true));

element("search").addEventListener("submit", (event) => {
  event.preventDefault();
  find(false);
});
element("search-text").addEventListener("keydown", (event) => {
  if (event.key === "Enter") {
    event.preventDefault();
    find(event.shiftKey);
  } else if (event.key === "Escape") {
    element<HTMLInputElement>("search-text").value = "";
    find(false);
    canvas.focus();
  }
});
element("filter").addEventListener("submit", (event) => {
  event.preventDefault();
  applyFilter(element<HTMLInputElement>("filter-text").value);
  canvas.focus();
});
element<HTMLInputElement>("filter-text").value = filter;

const zoomIn = (): void => viewport.zoom(1 / ZOOM_STEP, 0.5);
const zoomOut = (): void => viewport.zoom(ZOOM_STEP, 0.5);
const KEYS: Key[] = [
  { keys: ["w", "+", "="], shown: ["W", "+"], what: "zoom in", action: zoomIn },
  { keys: ["s", "-"], shown: ["S", "−"], what: "zoom out", action: zoomOut },
  { keys: ["a", "ArrowLeft"], shown: ["A", "←"], what: "pan to earlier", action: () => viewport.pan(-viewport.span * PAN_STEP) },
  { keys: ["d", "ArrowRight"], shown: ["D", "→"], what: "pan to later", action: () => viewport.pan(viewport.span * PAN_STEP) },
  { keys: ["ArrowUp"], shown: ["↑"], what: "scroll up", action: () => (timeline.scroll -= 60) },
  { keys: ["ArrowDown"], shown: ["↓"], what: "scroll down", action: () => (timeline.scroll += 60) },
  { keys: [" "], shown: ["Space"], what: "follow the present, or pause", action: toggleFollow },
  { keys: ["Home"], shown: ["Home"], what: "show everything", action: showAll },
  { keys: ["f"], shown: ["F"], what: "zoom to the selection", action: fitSelection },
  { keys: ["m"], shown: ["M"], what: "select the range of the span, or what is in view", action: markRange },
  { keys: ["v"], shown: ["V"], what: "what is in view: spans, events, counters", action: () => panel.showView() },
  { keys: ["r"], shown: ["R"], what: "which tracks are shown: find, pin and hide them", action: () => panel.showTracks() },
  { keys: ["]"], shown: ["]"], what: "next span of the same name", action: () => findSameName(false) },
  { keys: ["["], shown: ["["], what: "previous span of the same name", action: () => findSameName(true) },
  { keys: ["/"], shown: ["/", "Ctrl F"], what: "search names; Enter goes on, Shift Enter back", action: () => element("search-text").focus() },
  { keys: ["t"], shown: ["T"], what: "light or dark", action: changeTheme },
  { keys: ["Escape"], shown: ["Esc"], what: "close the panel", action: () => panel.close() },
  { keys: ["?"], shown: ["?"], what: "this list", action: showHelp },
];
listenForKeys(KEYS, element<HTMLDialogElement>("help"), () => (isDirty = true));

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  theme = applyTheme();
  [timeline.theme, histogram.theme] = [theme, theme];
  panel.themeChanged();
  isDirty = true;
});

addEventListener("hashchange", (event) => {
  // By now the interval below may have replaced the fragment by that of the view before.
  viewport.readFragment(new URL(event.newURL).hash);
  writeFragment();
  isDirty = true;
});

/** Makes the URL a link to what is shown. */
function writeFragment(): void {
  const filtered = filter === "" ? "" : `&filter=${encodeURIComponent(filter)}`;
  const { range } = timeline;
  const ranged = range === null ? "" : `&range=${range.from}-${range.to}`;
  const fragment = `#${viewport.toFragment()}${ranged}${filtered}`;
  if ((viewport.isChosen || filter !== "" || range !== null) && location.hash !== fragment) {
    history.replaceState(null, "", fragment);
  }
}
setInterval(writeFragment, FRAGMENT_INTERVAL_MS);

/** What is shown now, for tests. */
function viewForTests(): object {
  const shown = timeline.shown().map((shown) => {
    const [begin, end] = times(shown);
    const track = model.tracks.get(shown.track);
    return {
      name: model.name(shown.rows.name(shown.at)),
      begin: begin.toString(),
      end: end?.toString() ?? null,
      count: shown.rows.count(shown.at),
      depth: shown.rows.depth(shown.at),
      kind: shown.rows.kind(shown.at),
      value: shown.rows.kind(shown.at) === Kind.Counter ? shown.rows.end(shown.at) : null,
      process: track?.process,
      thread: track?.thread,
      x: shown.x,
      y: shown.y + canvas.getBoundingClientRect().top,
      width: shown.width,
      height: shown.height,
    };
  });
  return {
    isConnected,
    isFollowing: viewport.isFollowing,
    isLive: model.isLive,
    from: viewport.from.toString(),
    to: viewport.to.toString(),
    sessions: model.sessions,
    tracks: [...model.tracks.values()],
    lanes: model.lanes.map((lane) => lane.label),
    shown,
    frames,
    range: timeline.range && { from: timeline.range.from.toString(), to: timeline.range.to.toString() },
    framesPerSecond: drawnAt.length,
    drawn: drawn.times,
    drawMs: drawn.ms,
    lag: model.lagNow(performance.now()),
    rows: model.kept,
    droppedUntil: model.droppedUntil?.toString() ?? null,
    histogram: histogram.columns(),
  };
}
/** Milliseconds since the latest event that is shown, for measurements: cheap enough for each frame. */
const lagForTests = (): number | null => model.lagNow(performance.now());
Object.assign(window, { __view: viewForTests, __lag: lagForTests });

requestAnimationFrame(draw);
