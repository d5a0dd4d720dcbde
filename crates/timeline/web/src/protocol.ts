// Messages of the server, as crates/timeline/src/protocol.rs describes them.

export interface SessionState {
  id: number;
  name: string;
  isEnded: boolean;
  isRecording: boolean;
  /** What has been read of a recording; null for other sessions. */
  percentRead: number | null;
  events: number;
  lost: string;
  /** How the clock of its host is aligned; empty without `--align`. */
  clock: string;
  lag: number | null;
}

export interface TrackState {
  id: number;
  session: number;
  process: string;
  pid: number | null;
  thread: string;
  isCounter: boolean;
  depths: number;
  /** When its session ended; null while events may come. */
  endedAt: string | null;
}

export interface HistogramState {
  begin: string;
  width: string;
  events: number[];
  losses: number[];
}

export interface StateMessage {
  type: "state";
  edge: string | null;
  isLive: boolean;
  first: string | null;
  droppedUntil: string | null;
  rows: number;
  filteredPackets: number;
  /** Names in the filter that no event has; empty if there are none. */
  filterHint: string;
  sessions: SessionState[];
  tracks: TrackState[];
  removedTracks: number[];
  /** The tracks with rows in view, each with how many; null if nothing has changed. */
  active: [number, number][] | null;
  firstName: number;
  names: string[];
  histogram: HistogramState | null;
}

export interface DetailsReply {
  type: "details";
  number: number;
  /** The filter selects events with this value; null if there is none. */
  fields: { name: string; value: string; filter: string | null }[];
  /** All of the event; empty if that is very long. */
  json: string;
  arrows: Arrow[];
  /** The names of the spans of `tracing` around it, the outermost first. */
  parents: string[];
}

/** An arrow from a cause to its effect. */
export interface Arrow {
  /** The number of the name: of a flow, or of the CPU on which a thread was woken. */
  name: number;
  isWakeup: boolean;
  /** What woke the thread, or was within the flow. */
  cause: string;
  from: ArrowEnd;
  to: ArrowEnd;
}

export interface ArrowEnd {
  track: number;
  time: string;
}

export interface FoundRow {
  track: number;
  row: number;
  name: number;
  begin: string;
  end: string | null;
  kind: Kind;
  depth: number;
  /** The value of a counter; null for other rows, and if it is no number. */
  value: number | null;
}

export interface SearchReply {
  type: "search";
  number: number;
  total: number;
  /** The next one. */
  found: FoundRow | null;
  /** The first from the time on. */
  hits: FoundRow[];
}

export interface CountReply {
  type: "count";
  number: number;
  rows: number;
  refused: string;
}

/** The spans or states of a name. Times are in nanoseconds, within the range. */
export interface SpanSummary {
  name: number;
  count: number;
  total: number;
  own: number | null;
  p50: number;
  p99: number;
  max: number;
  longest: FoundRow;
}

/** What the rows of a range amount to. Times are in nanoseconds, within the range. */
export interface SummaryReply {
  type: "summary";
  number: number;
  spans: SpanSummary[];
  spanNames: number;
  /** States of threads, and threads that CPUs ran. */
  states: SpanSummary[];
  stateNames: number;
  events: { name: number; count: number; first: FoundRow }[];
  eventNames: number;
  /** Null where a value is no number. */
  counters: { track: number; count: number; min: number | null; max: number | null; mean: number | null }[];
  /** Each node before those within it. */
  graph: { depth: number; name: number; total: number }[];
  isCoarse: boolean;
}

export interface FilterReply {
  type: "filter";
  number: number;
  error: string;
}

export type Reply = DetailsReply | SearchReply | CountReply | SummaryReply | FilterReply;
export type ServerMessage = StateMessage | Reply;

export interface ViewRequest {
  type: "view";
  number: number;
  from: string;
  to: string;
  isFollowing: boolean;
  width: number;
  tracks: number[];
  /** Whether the state says how many rows each track has in view. */
  countsRows: boolean;
}

export const enum Kind {
  Span = 0,
  Instant = 1,
  Loss = 2,
  Counter = 3,
  State = 4,
}

/** Whether rows of a kind have a begin and an end. */
export function hasDuration(kind: Kind): boolean {
  return kind === Kind.Span || kind === Kind.State;
}

const HEAD_BYTES = 40;
/** The age of the latest event where there is none. */
const NO_AGE = -(2n ** 63n);
const TRACK_BYTES = 8;
const ROW_BYTES = 32;

/** The rows of one track in a frame. Times are in nanoseconds from the begin of the frame. */
export class Rows {
  private readonly floats: Float64Array;
  private readonly words: Uint32Array;

  constructor(
    /** The begin of the frame. */
    readonly from: bigint,
    buffer: ArrayBuffer,
    offset: number,
    readonly length: number,
  ) {
    this.floats = new Float64Array(buffer, offset, length * (ROW_BYTES / 8));
    this.words = new Uint32Array(buffer, offset, length * (ROW_BYTES / 4));
  }

  start(row: number): number {
    return this.floats[row * 4]!;
  }
  /** The end; of a counter its value. */
  end(row: number): number {
    return this.floats[row * 4 + 1]!;
  }
  name(row: number): number {
    return this.words[row * 8 + 4]!;
  }
  count(row: number): number {
    return this.words[row * 8 + 5]!;
  }
  row(row: number): number {
    return this.words[row * 8 + 6]!;
  }
  depth(row: number): number {
    return this.words[row * 8 + 7]! & 0xffff;
  }
  kind(row: number): Kind {
    return (this.words[row * 8 + 7]! >>> 16) & 0xff;
  }
}

export interface Frame {
  frame: number;
  request: number;
  from: bigint;
  to: bigint;
  /** Nanoseconds from the latest event of a live session until the frame was made. */
  age: number | null;
  tracks: Map<number, Rows>;
}

/** Reads a binary message. The views of rows share its memory. */
export function parseFrame(buffer: ArrayBuffer): Frame {
  const view = new DataView(buffer);
  const from = view.getBigInt64(8, true);
  const age = view.getBigInt64(24, true);
  const count = view.getUint32(32, true);
  const tracks = new Map<number, Rows>();
  let offset = HEAD_BYTES;
  for (let track = 0; track < count; track++) {
    const id = view.getUint32(offset, true);
    const rows = view.getUint32(offset + 4, true);
    offset += TRACK_BYTES;
    tracks.set(id, new Rows(from, buffer, offset, rows));
    offset += rows * ROW_BYTES;
  }
  return {
    frame: view.getUint32(0, true),
    request: view.getUint32(4, true),
    from,
    to: view.getBigInt64(16, true),
    age: age === NO_AGE ? null : Number(age),
    tracks,
  };
}
