// A canvas that fills its element, with a pixel of the device for each of its own.

export class Surface {
  readonly context: CanvasRenderingContext2D;
  width = 0;
  height = 0;

  constructor(readonly canvas: HTMLCanvasElement) {
    const context = canvas.getContext("2d", { alpha: false });
    if (context === null) {
      throw new Error("this browser has no canvas");
    }
    this.context = context;
  }

  /** Adapts to the size of the element, and returns whether that has changed. */
  resize(): boolean {
    const box = this.canvas.getBoundingClientRect();
    const ratio = window.devicePixelRatio;
    const [width, height] = [Math.round(box.width * ratio), Math.round(box.height * ratio)];
    [this.width, this.height] = [box.width, box.height];
    if (this.canvas.width === width && this.canvas.height === height) {
      return false;
    }
    [this.canvas.width, this.canvas.height] = [width, height];
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    return true;
  }
}

const FONT = 'system-ui, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", sans-serif';
export const ROW_FONT = `11px ${FONT}`;
export const LABEL_FONT = `12px ${FONT}`;
export const STRONG_FONT = `600 12px ${FONT}`;

/** Widths of texts, measured once. */
const widths = new Map<string, number>();

export function textWidth(context: CanvasRenderingContext2D, text: string): number {
  const key = `${context.font}|${text}`;
  let width = widths.get(key);
  if (width === undefined) {
    if (widths.size > 20_000) {
      widths.clear();
    }
    width = context.measureText(text).width;
    widths.set(key, width);
  }
  return width;
}

/** The text, or as much of it as has room. */
export function fitted(context: CanvasRenderingContext2D, text: string, room: number): string {
  const width = textWidth(context, text);
  if (width <= room) {
    return text;
  }
  const length = Math.floor((text.length * room) / width) - 1;
  return length < 2 ? "" : `${text.slice(0, length)}…`;
}
