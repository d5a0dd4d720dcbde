// The events and losses of the whole session per time, and which part of it the timeline shows.

import { ROW_FONT, Surface } from "./canvas";
import { count } from "./format";
import { Model } from "./model";
import { Theme } from "./theme";
import { gutter } from "./timeline";
import { Viewport } from "./viewport";

/** In pixels. */
const MIN_COLUMN_WIDTH = 2;

export class Histogram {
  private readonly surface: Surface;

  constructor(
    canvas: HTMLCanvasElement,
    private readonly model: Model,
    private readonly viewport: Viewport,
    public theme: Theme,
  ) {
    this.surface = new Surface(canvas);
  }

  resize(): boolean {
    return this.surface.resize();
  }

  private range(): { begin: bigint; ns: number } | null {
    const histogram = this.model.histogram;
    if (histogram === null || histogram.events.length === 0) {
      return null;
    }
    const ns = Number(histogram.width) * histogram.events.length;
    return { begin: BigInt(histogram.begin), ns };
  }

  /** The time at a place. */
  timeAt(x: number): bigint | null {
    const range = this.range();
    if (range === null) {
      return null;
    }
    const part = (x - gutter) / (this.surface.width - gutter);
    return range.begin + BigInt(Math.round(Math.min(1, Math.max(0, part)) * range.ns));
  }

  /** The events of each column, which stands for so many buckets; the last one perhaps for fewer. */
  columns(): { buckets: number; events: number[]; losses: number[] } {
    const { events, losses } = this.model.histogram ?? { events: [], losses: [] };
    const room = Math.max(1, Math.floor((this.surface.width - gutter) / MIN_COLUMN_WIDTH));
    // With another number of buckets in some columns, a steady rate would look like a comb.
    const buckets = Math.max(1, Math.ceil(events.length / room));
    return { buckets, events: sums(events, buckets), losses: sums(losses, buckets) };
  }

  draw(): void {
    const { context, width, height } = this.surface;
    const theme = this.theme;
    context.fillStyle = theme.background;
    context.fillRect(0, 0, width, height);
    context.font = ROW_FONT;
    context.textBaseline = "middle";
    context.fillStyle = theme.text;
    context.fillText("Events per second", 12, height / 2 - 9);
    const range = this.range();
    if (range === null) {
      return;
    }
    const { events, width: bucket } = this.model.histogram!;
    const room = width - gutter;
    const columns = this.columns();
    const max = Math.max(...columns.events, 1);
    const perSecond = (max * 1e9) / (Number(bucket) * columns.buckets);
    context.fillStyle = theme.quiet;
    context.fillText(`at most ${count(perSecond)}`, 12, height / 2 + 9);
    const step = (room * columns.buckets) / events.length;
    context.fillStyle = theme.accent;
    context.globalAlpha = 0.7;
    for (const [place, sum] of columns.events.entries()) {
      const size = sum === 0 ? 0 : Math.max(1, (sum / max) * (height - 10));
      context.fillRect(gutter + place * step, height - size, Math.max(step - 0.5, 1), size);
    }
    context.globalAlpha = 1;
    context.fillStyle = theme.red;
    for (const [place, sum] of columns.losses.entries()) {
      if (sum > 0) {
        context.fillRect(gutter + place * step, 0, Math.max(step, 2), 5);
      }
    }
    const x = (time: bigint): number => gutter + (Number(time - range.begin) / range.ns) * room;
    const begin = Math.max(gutter, Math.min(x(this.viewport.from), width - 2));
    const end = Math.min(width, Math.max(x(this.viewport.to), begin + 2));
    context.fillStyle = theme.background;
    context.globalAlpha = 0.6;
    context.fillRect(gutter, 0, begin - gutter, height);
    context.fillRect(end, 0, width - end, height);
    context.globalAlpha = 1;
    context.strokeStyle = theme.text;
    context.lineWidth = 1;
    context.strokeRect(begin + 0.5, 0.5, end - begin - 1, height - 1);
    context.fillStyle = theme.line;
    context.fillRect(gutter - 1, 0, 1, height);
  }
}

/** The sums of each so many neighbours. */
function sums(counts: number[], neighbours: number): number[] {
  const sums = new Array<number>(Math.ceil(counts.length / neighbours)).fill(0);
  for (const [place, count] of counts.entries()) {
    sums[Math.floor(place / neighbours)]! += count;
  }
  return sums;
}
