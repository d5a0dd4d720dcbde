// Numbers and times as text.

const UNITS: [number, string][] = [
  [86_400e9, "d"],
  [3600e9, "h"],
  [60e9, "min"],
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

/** A duration in nanoseconds, with about four digits. */
export function duration(ns: number): string {
  if (!Number.isFinite(ns)) {
    return "not ended";
  }
  const size = Math.abs(ns);
  for (const [unit, name] of UNITS) {
    if (size >= unit) {
      const value = ns / unit;
      const digits = Math.abs(value) >= 100 ? 1 : Math.abs(value) >= 10 ? 2 : 3;
      return `${trimmed(value.toFixed(unit === 1 ? 0 : digits))} ${name}`;
    }
  }
  return "0 ns";
}

/** A duration in nanoseconds, with all digits. */
export function exactDuration(ns: bigint): string {
  const text = (ns < 0n ? -ns : ns).toString().padStart(10, "0");
  const seconds = BigInt(text.slice(0, -9));
  return `${ns < 0n ? "−" : ""}${seconds}.${grouped(text.slice(-9))} s`;
}

function trimmed(text: string): string {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function grouped(digits: string): string {
  return digits.replace(/(\d{3})(?=\d)/g, "$1\u2009");
}

/** Times before this are of a clock that does not count from 1970. */
const FIRST_UNIX_TIME = 86_400n * 365n * 1_000_000_000n;

/** A time with all nanoseconds: of the day, or since the clock's origin. */
export function time(ns: bigint): string {
  const [seconds, rest] = split(ns);
  const fraction = grouped(rest.toString().padStart(9, "0"));
  if (ns < FIRST_UNIX_TIME) {
    return `${seconds}.${fraction} s`;
  }
  return `${clock(seconds)}.${fraction}`;
}

/** A time with its day. */
export function dayAndTime(ns: bigint): string {
  if (ns < FIRST_UNIX_TIME) {
    return time(ns);
  }
  const day = new Date(Number(split(ns)[0]) * 1000);
  const parts = [day.getFullYear(), day.getMonth() + 1, day.getDate()];
  return `${parts.map(two).join("-")} ${time(ns)}`;
}

/** A time with as many digits as tell ticks apart that are `step` nanoseconds from each other. */
export function tick(ns: bigint, step: number): string {
  const [seconds, rest] = split(ns);
  const digits = step >= 1e9 ? 0 : Math.min(9, Math.ceil(9 - Math.log10(step) - 1e-9));
  const fraction = digits === 0 ? "" : `.${rest.toString().padStart(9, "0").slice(0, digits)}`;
  if (ns < FIRST_UNIX_TIME) {
    return `${seconds}${fraction} s`;
  }
  if (step >= 86_400e9) {
    const day = new Date(Number(seconds) * 1000);
    return [day.getMonth() + 1, day.getDate()].map(two).join("-");
  }
  return `${clock(seconds)}${fraction}`;
}

function split(ns: bigint): [bigint, bigint] {
  const billion = 1_000_000_000n;
  const rest = ((ns % billion) + billion) % billion;
  return [(ns - rest) / billion, rest];
}

function clock(seconds: bigint): string {
  const date = new Date(Number(seconds) * 1000);
  return [date.getHours(), date.getMinutes(), date.getSeconds()].map(two).join(":");
}

function two(value: number): string {
  return value.toString().padStart(2, "0");
}

const COUNTS: [number, string][] = [
  [1e9, "G"],
  [1e6, "M"],
  [1e3, "k"],
];

/** A number of events, short. */
export function count(value: number): string {
  for (const [unit, name] of COUNTS) {
    if (value >= 10 * unit || (value >= unit && unit > 1e3)) {
      return `${trimmed((value / unit).toFixed(1))}\u2009${name}`;
    }
  }
  return Math.round(value).toString();
}
