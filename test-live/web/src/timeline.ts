// Draws the timeline, and finds what is under the mouse.

import { LABEL_FONT, ROW_FONT, STRONG_FONT, Surface, fitted, textWidth } from "./canvas";
import { count, duration, tick } from "./format";
import { Lane, Model, ROW_HEIGHT } from "./model";
import { Kind, Rows } from "./protocol";
import { Theme, colorIndex } from "./theme";
import { Viewport } from "./viewport";

export const GUTTER = 220;
export const RULER = 26;
const PAD = 3;
const MIN_TEXT_WIDTH = 28;

/** A row that is drawn, for tests and for the mouse. */
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
  shown: Shown[] = [];
  private colors: number[] = [];
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
    return Math.max(50, this.surface.width - GUTTER);
  }

  resize(): boolean {
    return this.surface.resize();
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
    for (let at = this.shown.length - 1; at >= 0; at--) {
      const shown = this.shown[at]!;
      const slack = shown.width < 6 ? 3 : 0;
      const inX = x >= shown.x - slack && x <= shown.x + shown.width + slack;
      if (inX && y >= shown.y && y < shown.y + shown.height) {
        return shown;
      }
    }
    return null;
  }

  draw(): void {
    const { context, width, height } = this.surface;
    const theme = this.theme;
    this.shown = [];
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
    this.drawRange();
    context.fillStyle = theme.background;
    context.fillRect(0, RULER, GUTTER, height - RULER);
    context.fillStyle = theme.line;
    context.fillRect(GUTTER - 1, RULER, 1, height);
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
    const clocks = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 21600, 43200, 86400];
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
    return GUTTER + this.viewport.offset(time) * this.pixelsPerNs;
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
    context.fillRect(0, 0, GUTTER - 1, RULER - 1);
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
    context.fillRect(GUTTER, RULER, end - GUTTER, height);
    context.globalAlpha = 1;
    context.fillStyle = this.theme.red;
    context.fillRect(end - 1, RULER, 1, height);
    context.font = LABEL_FONT;
    const text = "older events were dropped";
    const width = textWidth(context, text) + 16;
    if (end - GUTTER > width) {
      context.fillText(text, end - width + 6, height - 14);
    }
  }

  private drawRange(): void {
    if (this.range === null) {
      return;
    }
    const { context, width, height } = this.surface;
    const begin = Math.max(GUTTER, Math.min(this.x(this.range.from), width));
    const end = Math.max(GUTTER, Math.min(this.x(this.range.to), width));
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
    const part = (x - GUTTER) / this.plotWidth;
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
      const { isEnded, isRecording, events, lost, lag } = lane.session;
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
      const facts = [isEnded ? "ended" : isRecording ? "recording" : "live", `${count(events)} events`];
      if (lag !== null) {
        facts.push(`latest ${duration(Math.max(0, lag) * 1e6)} ago`);
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
      context.fillText(fitted(context, lane.label, GUTTER - 46), 36, middle);
      return;
    }
    context.font = LABEL_FONT;
    context.fillStyle = theme.text;
    const y = lane.track?.isCounter ? middle : top + PAD + ROW_HEIGHT / 2;
    context.fillText(fitted(context, lane.label, GUTTER - 58), 48, y);
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
      color = colorIndex(text, this.theme.palette.length);
      if (text !== "") {
        this.colors[name] = color;
      }
    }
    return color;
  }

  /** Names have other numbers after a new connection. */
  forgetColors(): void {
    this.colors = [];
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
    const [scale, right] = [this.pixelsPerNs, this.surface.width];
    const shift = this.viewport.offset(rows.from);
    const byColor: Shown[][] = this.theme.palette.map(() => []);
    const losses: Shown[] = [];
    for (let at = 0; at < rows.length; at++) {
      const begin = GUTTER + (rows.start(at) + shift) * scale;
      const end = Math.min(GUTTER + (rows.end(at) + shift) * scale, right);
      if (end < GUTTER || begin > right) {
        continue;
      }
      const x = Math.max(begin, GUTTER);
      const kind = rows.kind(at);
      const y = top + PAD + rows.depth(at) * ROW_HEIGHT;
      const shown = { track: track.id, rows, at, x, y, width: Math.max(end - x, 1), height: ROW_HEIGHT - 1 };
      if (kind === Kind.Loss) {
        losses.push({ ...shown, y: top, height: lane.height - 1, width: Math.max(shown.width, 3) });
      } else {
        byColor[this.color(rows.name(at))]!.push(shown);
      }
    }
    const searched = this.searched.toLowerCase();
    for (const [color, group] of byColor.entries()) {
      context.fillStyle = this.theme.palette[color]!;
      for (const shown of group) {
        if (searched !== "") {
          const isFound = this.model.name(shown.rows.name(shown.at)).toLowerCase().includes(searched);
          context.globalAlpha = isFound ? 1 : 0.3;
        }
        this.drawBox(shown);
      }
      this.shown.push(...group);
    }
    context.globalAlpha = 1;
    context.font = ROW_FONT;
    context.textBaseline = "middle";
    context.fillStyle = this.theme.rowText;
    for (const group of byColor) {
      for (const shown of group) {
        if (shown.width >= MIN_TEXT_WIDTH && shown.rows.kind(shown.at) === Kind.Span) {
          this.drawName(shown);
        }
      }
    }
    this.drawInstantNames(byColor.flat());
    for (const loss of losses) {
      context.fillStyle = this.theme.lossFill;
      context.fillRect(loss.x, loss.y, loss.width, loss.height);
      context.fillStyle = this.theme.red;
      context.fillRect(loss.x, loss.y, loss.width, 3);
      context.fillRect(loss.x, loss.y, 1, loss.height);
    }
    this.shown.push(...losses);
    this.drawSelection(top);
  }

  private drawBox(shown: Shown): void {
    const { context } = this.surface;
    const { x, y, width, height } = shown;
    if (shown.rows.kind(shown.at) === Kind.Instant) {
      context.fillRect(x, y + 1, Math.max(width, 3), height - 2);
    } else {
      // A gap shows where one span ends and the next begins.
      context.fillRect(x, y, width > 3 ? width - 0.75 : width, height);
    }
  }

  private drawName(shown: Shown): void {
    const { context } = this.surface;
    const { rows, at, x, y, width } = shown;
    const name = this.model.name(rows.name(at));
    const text = rows.count(at) > 1 ? `${count(rows.count(at))}× ${name}` : name;
    context.fillText(fitted(context, text, width - 8), x + 4, y + ROW_HEIGHT / 2);
  }

  /** Instants have their name beside them, where there is room. */
  private drawInstantNames(all: Shown[]): void {
    const { context } = this.surface;
    const byDepth = new Map<number, Shown[]>();
    for (const shown of all) {
      const of = byDepth.get(shown.y);
      of === undefined ? byDepth.set(shown.y, [shown]) : of.push(shown);
    }
    context.fillStyle = this.theme.text;
    for (const rows of byDepth.values()) {
      rows.sort((one, other) => one.x - other.x);
      for (const [place, shown] of rows.entries()) {
        if (shown.rows.kind(shown.at) !== Kind.Instant || shown.rows.count(shown.at) > 1) {
          continue;
        }
        const next = rows[place + 1]?.x ?? this.surface.width;
        const room = next - shown.x - 10;
        if (room > 40) {
          const name = this.model.name(shown.rows.name(shown.at));
          context.fillText(fitted(context, name, Math.min(room, 320)), shown.x + 6, shown.y + ROW_HEIGHT / 2);
        }
      }
    }
  }

  private drawSelection(top: number): void {
    const { context } = this.surface;
    const selection = this.selection;
    const isIt = (shown: Shown): boolean =>
      shown.track === selection?.track && shown.rows.row(shown.at) === selection.row && shown.y >= top;
    const shown = selection === null ? undefined : this.shown.find(isIt);
    if (shown !== undefined) {
      context.strokeStyle = this.theme.accent;
      context.lineWidth = 2;
      context.strokeRect(shown.x, shown.y, Math.max(shown.width, 3), shown.height);
    }
  }

  private drawCounter(lane: Lane, rows: Rows): void {
    const { context, width } = this.surface;
    const places = Array.from({ length: rows.length }, (_, at) => at);
    places.sort((one, other) => rows.start(one) - rows.start(other));
    let [min, max] = [0, 0];
    for (const at of places) {
      min = Math.min(min, rows.end(at));
      max = Math.max(max, rows.end(at));
    }
    const [top, room] = [this.laneTop(lane) + 4, lane.height - 9];
    const y = (value: number): number => top + room - ((value - min) / (max - min || 1)) * room;
    const shift = this.viewport.offset(rows.from);
    const color = this.theme.palette[colorIndex(lane.label, this.theme.palette.length)]!;
    for (const [place, at] of places.entries()) {
      const x = Math.max(GUTTER, GUTTER + (rows.start(at) + shift) * this.pixelsPerNs);
      const next = places[place + 1];
      const end = next === undefined ? this.presentX() : GUTTER + (rows.start(next) + shift) * this.pixelsPerNs;
      const [high, low] = [y(Math.max(rows.end(at), 0)), y(Math.min(rows.end(at), 0))];
      context.fillStyle = color;
      context.fillRect(x, high, Math.max(Math.min(end, width) - x, 1), Math.max(low - high, 1));
      this.shown.push({ track: lane.track!.id, rows, at, x, y: top, width: Math.max(end - x, 1), height: room });
    }
    context.font = ROW_FONT;
    context.textBaseline = "top";
    context.fillStyle = this.theme.quiet;
    context.fillText(`${max}`, GUTTER + 6, top);
  }

  private presentX(): number {
    const edge = this.model.edgeNow(performance.now());
    return edge === null ? this.surface.width : Math.max(GUTTER, this.x(edge));
  }
}
