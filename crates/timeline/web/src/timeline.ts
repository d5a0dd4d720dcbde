// Draws the timeline, and finds what is under the mouse.

import { Boxes } from "./boxes";
import { LABEL_FONT, ROW_FONT, STRONG_FONT, Surface, fitted, textWidth } from "./canvas";
import { count, duration, tick } from "./format";
import { Lane, Model, ROW_HEIGHT } from "./model";
import { type Arrow, type ArrowEnd, Kind, Rows } from "./protocol";
import { Theme, colorIndex, stateColor } from "./theme";
import { Viewport } from "./viewport";

/** The width of the names of tracks, in pixels: less on a narrow screen. */
export let gutter = 220;
export const RULER = 26;
const PAD = 3;
const MIN_TEXT_WIDTH = 28;
/** An instant has its name beside it if there is so much room, in pixels, and no more than so much of it is used. */
const MIN_INSTANT_ROOM = 50;
const MAX_INSTANT_WIDTH = 320;
/** Boxes that are not wider are drawn without a gap, and as one if they touch and have one color. */
const MAX_DENSE_WIDTH = 3;

/** A row and where it is drawn, for tests and for the mouse. Drawing itself makes no object for each row. */
export interface Shown {
  track: number;
  rows: Rows;
  at: number;
  x: number;
  y: number;
  width: number;
  height: number;
}

export interface Selection {
  track: number;
  row: number;
}

export interface Range {
  from: bigint;
  to: bigint;
}

export class Timeline {
  scroll = 0;
  selection: Selection | null = null;
  range: Range | null = null;
  /** What names are searched for; others are drawn pale. Empty: nothing. */
  searched = "";
  /** The arrows of what is selected. */
  arrows: Arrow[] = [];
  private colors: number[] = [];
  private stateColors: number[] = [];
  /** What is drawn of a track, by color, first what is found and then what is not. */
  private readonly boxes: Boxes[] = [];
  /** The number of rows that begin at each pixel, for each depth. */
  private begins = new Uint8Array(0);
  private readonly surface: Surface;

  constructor(
    canvas: HTMLCanvasElement,
    private readonly model: Model,
    private readonly viewport: Viewport,
    public theme: Theme,
  ) {
    this.surface = new Surface(canvas);
  }

  /** The width of the part with rows, in pixels. */
  get plotWidth(): number {
    return Math.max(50, this.surface.width - gutter);
  }

  resize(): boolean {
    const isResized = this.surface.resize();
    gutter = Math.min(220, Math.round(this.surface.width * 0.35));
    return isResized;
  }

  clampScroll(): void {
    const room = this.model.height + RULER + 40 - this.surface.height;
    this.scroll = Math.max(0, Math.min(this.scroll, room));
  }

  private laneTop(lane: Lane): number {
    return RULER + lane.top - this.scroll;
  }

  private isVisible(lane: Lane): boolean {
    const top = this.laneTop(lane);
    return top < this.surface.height && top + lane.height > RULER;
  }

  visibleTracks(): number[] {
    const lanes = this.model.lanes.filter((lane) => lane.track !== null && this.isVisible(lane));
    return lanes.map((lane) => lane.track!.id).slice(0, 512);
  }

  laneAt(y: number): Lane | null {
    if (y < RULER) {
      return null;
    }
    const inLane = (lane: Lane): boolean => {
      const top = this.laneTop(lane);
      return y >= top && y < top + lane.height;
    };
    return this.model.lanes.find(inLane) ?? null;
  }

  /** The row at a place: the last that was drawn there. */
  rowAt(x: number, y: number): Shown | null {
    const lane = this.laneAt(y);
    const shown = lane === null ? [] : this.shownOf(lane);
    const isThere = (one: Shown): boolean => {
      const slack = one.width < 6 ? 3 : 0;
      return x >= one.x - slack && x <= one.x + one.width + slack && y >= one.y && y < one.y + one.height;
    };
    // What is drawn last is on top.
    return shown.reverse().find(isThere) ?? null;
  }

  /** All rows in view. */
  shown(): Shown[] {
    return this.model.lanes.filter((lane) => this.isVisible(lane)).flatMap((lane) => this.shownOf(lane));
  }

  /** The rows of a track in view, losses last. */
  private shownOf(lane: Lane): Shown[] {
    const track = lane.track?.id;
    const rows = track === undefined ? undefined : this.model.rows.get(track);
    if (track === undefined || rows === undefined) {
      return [];
    }
    if (lane.track!.isCounter) {
      return this.shownOfCounter(lane, rows);
    }
    const top = this.laneTop(lane);
    const [scale, right] = [this.pixelsPerNs, this.surface.width];
    const shift = this.viewport.offset(rows.from);
    const [shown, losses]: [Shown[], Shown[]] = [[], []];
    for (let at = 0; at < rows.length; at++) {
      const begin = gutter + (rows.start(at) + shift) * scale;
      const end = Math.min(gutter + (rows.end(at) + shift) * scale, right);
      if (end < gutter || begin > right) {
        continue;
      }
      const x = Math.max(begin, gutter);
      const width = Math.max(end - x, 1);
      if (rows.kind(at) === Kind.Loss) {
        losses.push({ track, rows, at, x, y: top, width: Math.max(width, 3), height: lane.height - 1 });
      } else {
        const y = top + PAD + rows.depth(at) * ROW_HEIGHT;
        shown.push({ track, rows, at, x, y, width, height: ROW_HEIGHT - 1 });
      }
    }
    return [...shown, ...losses];
  }

  draw(): void {
    const { context, width, height } = this.surface;
    const theme = this.theme;
    context.fillStyle = theme.background;
    context.fillRect(0, 0, width, height);
    context.save();
    context.beginPath();
    context.rect(0, RULER, width, height - RULER);
    context.clip();
    this.drawGrid();
    const lanes = this.model.lanes.filter((lane) => this.isVisible(lane));
    for (const lane of lanes.filter((lane) => lane.kind === "track")) {
      this.drawTrack(lane);
    }
    this.drawDropped();
    this.drawArrows();
    this.drawRange();
    context.fillStyle = theme.background;
    context.fillRect(0, RULER, gutter, height - RULER);
    context.fillStyle = theme.line;
    context.fillRect(gutter - 1, RULER, 1, height);
    for (const lane of lanes) {
      this.drawLabel(lane);
    }
    context.restore();
    this.drawRuler();
  }

  private get pixelsPerNs(): number {
    return this.plotWidth / this.viewport.span;
  }

  /** The times of the lines of the grid, from the begin of the view on. */
  private ticks(): { step: number; times: bigint[] } {
    const raw = (this.viewport.span / this.plotWidth) * 130;
    const power = 10 ** Math.floor(Math.log10(raw));
    const factor = [1, 2, 5, 10].find((factor) => factor * power >= raw) ?? 10;
    let step = Math.max(1, factor * power);
    // Above a second the steps of clocks are expected.
    const days = [1, 2, 5, 10, 30, 100, 365].map((days) => days * 86_400);
    const clocks = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, ...days];
    if (step > 1e9) {
      step = (clocks.find((seconds) => seconds * 1e9 >= raw) ?? step / 1e9) * 1e9;
    }
    const width = BigInt(Math.round(step));
    const times: bigint[] = [];
    let time = (this.viewport.from / width) * width;
    while (time <= this.viewport.to && times.length < 100) {
      if (time >= this.viewport.from) {
        times.push(time);
      }
      time += width;
    }
    return { step, times };
  }

  private x(time: bigint): number {
    return gutter + this.viewport.offset(time) * this.pixelsPerNs;
  }

  private drawGrid(): void {
    const { context, height } = this.surface;
    context.fillStyle = this.theme.line;
    context.globalAlpha = 0.6;
    for (const time of this.ticks().times) {
      context.fillRect(Math.round(this.x(time)), RULER, 1, height);
    }
    context.globalAlpha = 1;
  }

  private drawRuler(): void {
    const { context, width } = this.surface;
    context.fillStyle = this.theme.surface;
    context.fillRect(0, 0, width, RULER);
    context.fillStyle = this.theme.line;
    context.fillRect(0, RULER - 1, width, 1);
    context.font = ROW_FONT;
    context.textBaseline = "middle";
    const { step, times } = this.ticks();
    for (const time of times) {
      const x = Math.round(this.x(time));
      context.fillStyle = this.theme.quiet;
      context.fillRect(x, RULER - 7, 1, 6);
      context.fillStyle = this.theme.text;
      context.fillText(tick(time, step), x + 4, RULER / 2);
    }
    context.fillStyle = this.theme.surface;
    context.fillRect(0, 0, gutter - 1, RULER - 1);
    context.fillStyle = this.theme.quiet;
    context.fillText(`one line is ${duration(step)}`, 12, RULER / 2);
  }

  /** What is older than the history. */
  private drawDropped(): void {
    const until = this.model.droppedUntil;
    if (until === null || until < this.viewport.from) {
      return;
    }
    const { context, height } = this.surface;
    const end = Math.min(this.x(until), this.surface.width);
    context.globalAlpha = 0.75;
    context.fillStyle = this.theme.surface;
    context.fillRect(gutter, RULER, end - gutter, height);
    context.globalAlpha = 1;
    context.fillStyle = this.theme.red;
    context.fillRect(end - 1, RULER, 1, height);
    context.font = LABEL_FONT;
    const text = "older events were dropped";
    const width = textWidth(context, text) + 16;
    if (end - gutter > width) {
      context.fillText(text, end - width + 6, height - 14);
    }
  }

  private drawRange(): void {
    if (this.range === null) {
      return;
    }
    const { context, width, height } = this.surface;
    const begin = Math.max(gutter, Math.min(this.x(this.range.from), width));
    const end = Math.max(gutter, Math.min(this.x(this.range.to), width));
    context.fillStyle = this.theme.accent;
    context.globalAlpha = 0.14;
    context.fillRect(begin, RULER, end - begin, height);
    context.globalAlpha = 1;
    context.fillRect(begin, RULER, 1, height);
    context.fillRect(end - 1, RULER, 1, height);
  }

  /** Scrolls so that a track can be seen. */
  reveal(track: number, depth: number): void {
    const lane = this.model.lanes.find((lane) => lane.track?.id === track);
    if (lane === undefined) {
      return;
    }
    const top = lane.top + depth * ROW_HEIGHT;
    const room = this.surface.height - RULER - 80;
    if (top < this.scroll + 20 || top > this.scroll + room) {
      this.scroll = top - room / 2;
    }
    this.clampScroll();
  }

  /** The time at a place. */
  timeAt(x: number): bigint {
    const part = (x - gutter) / this.plotWidth;
    return this.viewport.from + BigInt(Math.round(part * this.viewport.span));
  }

  private drawLabel(lane: Lane): void {
    const { context, width } = this.surface;
    const [top, theme] = [this.laneTop(lane), this.theme];
    const middle = top + lane.height / 2;
    context.textBaseline = "middle";
    if (lane.kind === "session") {
      context.fillStyle = theme.surface;
      context.fillRect(0, top, width, lane.height);
      context.fillStyle = theme.line;
      context.fillRect(0, top + lane.height - 1, width, 1);
      const { isEnded, isRecording, percentRead, events, lost, clock, lag } = lane.session;
      context.fillStyle = isEnded ? theme.quiet : isRecording ? theme.accent : "#1f9d55";
      context.beginPath();
      context.arc(32, middle, 4, 0, 2 * Math.PI);
      context.fill();
      this.drawTriangle(14, middle, lane.isCollapsed);
      context.font = STRONG_FONT;
      context.fillStyle = theme.text;
      context.fillText(lane.label, 44, middle);
      let x = 44 + textWidth(context, lane.label) + 14;
      context.font = LABEL_FONT;
      const facts = [isEnded ? "ended" : isRecording ? `reading ${percentRead} %` : "live", `${count(events)} events`];
      if (lag !== null) {
        facts.push(`latest ${duration(Math.max(0, lag) * 1e6)} ago`);
      }
      if (clock !== "") {
        facts.push(clock);
      }
      context.fillStyle = theme.quiet;
      const text = facts.join("  ·  ");
      context.fillText(text, x, middle);
      x += textWidth(context, text) + 14;
      if (lost !== "") {
        context.fillStyle = theme.red;
        context.fillText(lost, x, middle);
      }
      return;
    }
    context.fillStyle = theme.line;
    context.fillRect(0, top + lane.height - 1, width, 1);
    if (lane.kind === "process") {
      this.drawTriangle(24, middle, lane.isCollapsed);
      context.font = STRONG_FONT;
      context.fillStyle = theme.text;
      context.fillText(fitted(context, lane.label, gutter - 46), 36, middle);
      return;
    }
    context.font = LABEL_FONT;
    context.fillStyle = theme.text;
    const y = lane.track?.isCounter ? middle : top + PAD + ROW_HEIGHT / 2;
    context.fillText(fitted(context, lane.label, gutter - 58), 48, y);
  }

  private drawTriangle(x: number, y: number, isCollapsed: boolean): void {
    const { context } = this.surface;
    context.fillStyle = this.theme.quiet;
    context.beginPath();
    const points = isCollapsed
      ? [[x - 2, y - 4], [x + 3, y], [x - 2, y + 4]]
      : [[x - 4, y - 2], [x + 4, y - 2], [x, y + 3]];
    for (const [px, py] of points) {
      context.lineTo(px!, py!);
    }
    context.fill();
  }

  private color(name: number): number {
    let color = this.colors[name];
    if (color === undefined) {
      const text = this.model.name(name);
      color = colorIndex(text);
      if (text !== "") {
        this.colors[name] = color;
      }
    }
    return color;
  }

  /** The color of a state: that of the process, if it is a thread that a CPU runs. */
  private stateColor(name: number): number {
    let color = this.stateColors[name];
    if (color === undefined) {
      const text = this.model.name(name);
      color = stateColor(text) ?? colorIndex(this.model.processOf(text));
      if (text !== "") {
        this.stateColors[name] = color;
      }
    }
    return color;
  }

  /** Names have other numbers after a new connection, and threads have other processes when these become known. */
  forgetColors(): void {
    this.colors = [];
    this.stateColors = [];
  }

  private drawArrows(): void {
    const { context } = this.surface;
    context.strokeStyle = this.theme.text;
    context.fillStyle = this.theme.text;
    context.lineWidth = 1.5;
    for (const arrow of this.arrows) {
      const [from, to] = [this.placeOf(arrow.from, arrow.isWakeup), this.placeOf(arrow.to, arrow.isWakeup)];
      if (from === null || to === null) {
        continue;
      }
      const bend = Math.max(12, Math.min(60, Math.abs(to.x - from.x) / 2));
      context.beginPath();
      context.moveTo(from.x, from.y);
      context.bezierCurveTo(from.x + bend, from.y, to.x - bend, to.y, to.x - 5, to.y);
      context.stroke();
      context.beginPath();
      context.moveTo(to.x, to.y);
      context.lineTo(to.x - 6, to.y - 4);
      context.lineTo(to.x - 6, to.y + 4);
      context.fill();
    }
  }

  /** Where an end of an arrow is; null if its track is not shown. States are on the first line of a track. */
  private placeOf(end: ArrowEnd, isState: boolean): { x: number; y: number } | null {
    const lane = this.model.lanes.find((lane) => lane.track?.id === end.track);
    if (lane === undefined) {
      return null;
    }
    const x = this.x(BigInt(end.time));
    const around = isState ? [] : this.shownOf(lane).filter((shown) => shown.x <= x + 1 && x <= shown.x + shown.width + 1);
    const y = Math.max(this.laneTop(lane) + PAD, ...around.map((shown) => shown.y));
    return { x, y: y + ROW_HEIGHT / 2 };
  }

  private drawTrack(lane: Lane): void {
    const track = lane.track!;
    const rows = this.model.rows.get(track.id);
    if (rows === undefined) {
      return;
    }
    if (track.isCounter) {
      this.drawCounter(lane, rows);
      return;
    }
    const { context } = this.surface;
    const top = this.laneTop(lane);
    const { names, instants, losses } = this.collectBoxes(lane, rows);
    for (const [place, boxes] of this.boxes.entries()) {
      if (boxes.length > 0) {
        context.fillStyle = this.theme.palette[place >> 1]!;
        context.globalAlpha = place % 2 === 0 ? 1 : 0.3;
        boxes.fill(context);
      }
    }
    context.globalAlpha = 1;
    context.font = ROW_FONT;
    context.textBaseline = "middle";
    context.fillStyle = this.theme.rowText;
    for (const shown of names) {
      this.drawName(shown);
    }
    context.fillStyle = this.theme.text;
    for (const shown of instants) {
      this.drawInstantName(shown, top);
    }
    for (const loss of losses) {
      context.fillStyle = this.theme.lossFill;
      context.fillRect(loss.x, loss.y, loss.width, loss.height);
      context.fillStyle = this.theme.red;
      context.fillRect(loss.x, loss.y, loss.width, 3);
      context.fillRect(loss.x, loss.y, 1, loss.height);
    }
    if (this.selection?.track === track.id) {
      this.drawSelection(lane, this.selection.row);
    }
  }

  /** Puts the boxes of a track into `boxes`, and returns what more than boxes is drawn of. */
  private collectBoxes(lane: Lane, rows: Rows): { names: Shown[]; instants: Shown[]; losses: Shown[] } {
    const [names, instants, losses]: [Shown[], Shown[], Shown[]] = [[], [], []];
    const track = lane.track!.id;
    const top = this.laneTop(lane);
    const [scale, right] = [this.pixelsPerNs, this.surface.width];
    const shift = this.viewport.offset(rows.from);
    const columns = Math.ceil(right) + 1;
    const is = this.nameMatcher();
    this.clearBoxes(columns * (lane.track!.depths + 1));
    for (let at = 0; at < rows.length; at++) {
      const begin = gutter + (rows.start(at) + shift) * scale;
      const end = Math.min(gutter + (rows.end(at) + shift) * scale, right);
      if (end < gutter || begin > right) {
        continue;
      }
      const x = begin > gutter ? begin : gutter;
      const width = end - x > 1 ? end - x : 1;
      const kind = rows.kind(at);
      if (kind === Kind.Loss) {
        losses.push({ track, rows, at, x, y: top, width: Math.max(width, 3), height: lane.height - 1 });
        continue;
      }
      const depth = rows.depth(at);
      const y = top + PAD + depth * ROW_HEIGHT;
      const name = rows.name(at);
      const color = kind === Kind.State ? this.stateColor(name) : this.color(name);
      const boxes = this.boxes[2 * color + (is === null || is(name) ? 0 : 1)]!;
      const column = depth * columns + (x | 0);
      this.begins[column]! += this.begins[column]! < 255 ? 1 : 0;
      if (kind === Kind.Instant) {
        boxes.add(x, y + 1, width > 3 ? width : 3, ROW_HEIGHT - 3, depth);
        if (rows.count(at) === 1) {
          instants.push({ track, rows, at, x, y, width, height: ROW_HEIGHT - 1 });
        }
      } else if (width > MAX_DENSE_WIDTH) {
        // A gap shows where one span ends and the next begins: there is none where it goes on.
        boxes.addApart(x, y, end < right ? width - 0.75 : width, ROW_HEIGHT - 1);
        if (width >= MIN_TEXT_WIDTH) {
          names.push({ track, rows, at, x, y, width, height: ROW_HEIGHT - 1 });
        }
      } else {
        boxes.add(x, y, width, ROW_HEIGHT - 1, depth);
      }
    }
    return { names, instants, losses };
  }

  /** Whether a name is searched for; null if nothing is. */
  private nameMatcher(): ((name: number) => boolean) | null {
    if (this.searched === "") {
      return null;
    }
    const searched = this.searched.toLowerCase();
    const known = new Map<number, boolean>();
    return (name) => {
      const is = known.get(name) ?? this.model.name(name).toLowerCase().includes(searched);
      known.set(name, is);
      return is;
    };
  }

  private clearBoxes(columns: number): void {
    while (this.boxes.length < 2 * this.theme.palette.length) {
      this.boxes.push(new Boxes());
    }
    for (const boxes of this.boxes) {
      boxes.clear();
    }
    if (this.begins.length < columns) {
      this.begins = new Uint8Array(columns);
    }
    this.begins.fill(0, 0, columns);
  }

  private drawName(shown: Shown): void {
    const { context } = this.surface;
    const { rows, at, x, y, width } = shown;
    const name = this.model.name(rows.name(at));
    const text = rows.count(at) > 1 ? `${count(rows.count(at))}× ${name}` : name;
    context.fillText(fitted(context, text, width - 8), x + 4, y + ROW_HEIGHT / 2);
  }

  /** An instant has its name beside it, where there is room. */
  private drawInstantName(shown: Shown, top: number): void {
    const { context, width } = this.surface;
    const depth = Math.round((shown.y - top - PAD) / ROW_HEIGHT);
    const first = depth * (Math.ceil(width) + 1);
    const own = first + (shown.x | 0);
    if (this.begins[own] !== 1) {
      return;
    }
    const last = Math.min(own + MAX_INSTANT_WIDTH + 10, first + Math.floor(width));
    let next = own + 1;
    while (next < last && this.begins[next] === 0) {
      next += 1;
    }
    if (next - own > MIN_INSTANT_ROOM) {
      const name = this.model.name(shown.rows.name(shown.at));
      const text = fitted(context, name, Math.min(next - own - 10, MAX_INSTANT_WIDTH));
      context.fillText(text, shown.x + 6, shown.y + ROW_HEIGHT / 2);
    }
  }

  private drawSelection(lane: Lane, row: number): void {
    const { context } = this.surface;
    const shown = this.shownOf(lane).find((shown) => shown.rows.row(shown.at) === row);
    if (shown !== undefined) {
      context.strokeStyle = this.theme.accent;
      context.lineWidth = 2;
      context.strokeRect(shown.x, shown.y, Math.max(shown.width, 3), shown.height);
    }
  }

  private shownOfCounter(lane: Lane, rows: Rows): Shown[] {
    const places = Array.from({ length: rows.length }, (_, at) => at);
    places.sort((one, other) => rows.start(one) - rows.start(other));
    const [top, room] = [this.laneTop(lane) + 4, lane.height - 9];
    const shift = this.viewport.offset(rows.from);
    return places.flatMap((at, place) => {
      const x = Math.max(gutter, gutter + (rows.start(at) + shift) * this.pixelsPerNs);
      const next = places[place + 1];
      const end = next === undefined ? this.endX(lane) : gutter + (rows.start(next) + shift) * this.pixelsPerNs;
      // What ended before the view has no value in it.
      const shown = { track: lane.track!.id, rows, at, x, y: top, width: Math.max(end - x, 1), height: room };
      return end <= gutter ? [] : [shown];
    });
  }

  private drawCounter(lane: Lane, rows: Rows): void {
    const { context, width } = this.surface;
    const shown = this.shownOfCounter(lane, rows);
    let [min, max] = [0, 0];
    for (const { at } of shown) {
      min = Math.min(min, rows.end(at));
      max = Math.max(max, rows.end(at));
    }
    const [top, room] = [this.laneTop(lane) + 4, lane.height - 9];
    const y = (value: number): number => top + room - ((value - min) / (max - min || 1)) * room;
    context.fillStyle = this.theme.palette[colorIndex(lane.label)]!;
    for (const { at, x, width: own } of shown) {
      const [high, low] = [y(Math.max(rows.end(at), 0)), y(Math.min(rows.end(at), 0))];
      context.fillRect(x, high, Math.max(Math.min(x + own, width) - x, 1), Math.max(low - high, 1));
    }
    context.font = ROW_FONT;
    context.textBaseline = "top";
    context.fillStyle = this.theme.quiet;
    context.fillText(`${max}`, gutter + 6, top);
  }

  /** Where the latest value of a counter ends: at the present, or where its session has ended. */
  private endX(lane: Lane): number {
    const ended = lane.track!.endedAt;
    const end = ended === null ? this.model.edgeNow(performance.now()) : BigInt(ended);
    return end === null ? this.surface.width : this.x(end);
  }
}
