// The part of time that is shown.

const MIN_SPAN = 20;
const MAX_SPAN = 9 * 365 * 86_400e9;
export const FIRST_SPAN = 5e9;

export class Viewport {
  from = 0n;
  /** In nanoseconds. */
  span = FIRST_SPAN;
  isFollowing = true;
  /** Whether the user or a link has chosen what is shown. */
  isChosen = false;

  get to(): bigint {
    return this.from + BigInt(Math.round(this.span));
  }

  /** Nanoseconds from the begin of what is shown. */
  offset(time: bigint): number {
    return Number(time - this.from);
  }

  show(from: bigint, to: bigint): void {
    this.from = from;
    this.span = clampSpan(Number(to - from));
    this.isFollowing = false;
    this.isChosen = true;
  }

  follow(edge: bigint): void {
    this.from = edge - BigInt(Math.round(this.span));
  }

  pan(ns: number): void {
    this.from += BigInt(Math.round(ns));
    this.isFollowing = false;
    this.isChosen = true;
  }

  /** Zooms, with the time at this fraction of the width kept where it is; while following, the present is. */
  zoom(factor: number, at: number): void {
    const span = clampSpan(this.span * factor);
    const kept = this.isFollowing ? 1 : at;
    this.from += BigInt(Math.round((this.span - span) * kept));
    this.span = span;
    this.isChosen = true;
  }

  /** The view as a fragment of a URL. */
  toFragment(): string {
    return this.isFollowing
      ? `follow=${Math.round(this.span)}`
      : `from=${this.from}&to=${this.to}`;
  }

  /** Restores a view. What is no view is ignored. */
  readFragment(fragment: string): void {
    const parts = new URLSearchParams(fragment.replace(/^#/, ""));
    const number = (name: string): bigint | null => {
      const text = parts.get(name);
      return text !== null && /^-?\d{1,19}$/.test(text) ? BigInt(text) : null;
    };
    const [from, to, follow] = [number("from"), number("to"), number("follow")];
    if (from !== null && to !== null && to > from) {
      this.show(from, to);
    } else if (follow !== null && follow > 0n) {
      this.span = clampSpan(Number(follow));
      this.isFollowing = true;
      this.isChosen = true;
    }
  }
}

function clampSpan(span: number): number {
  return Math.min(MAX_SPAN, Math.max(MIN_SPAN, Math.round(span)));
}
