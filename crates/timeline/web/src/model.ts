// What the server has told: sessions, tracks, names and the rows of the latest frame.

import type { Frame, HistogramState, Rows, SessionState, StateMessage, TrackState } from "./protocol";

export interface Lane {
  kind: "session" | "process" | "track";
  label: string;
  /** Names the session or process that a click collapses or shows. */
  key: string;
  isCollapsed: boolean;
  session: SessionState;
  track: TrackState | null;
  top: number;
  height: number;
}

export const SESSION_HEIGHT = 26;
export const PROCESS_HEIGHT = 22;
export const ROW_HEIGHT = 18;
const TRACK_PADDING = 6;
const COUNTER_HEIGHT = 44;
const MAX_DEPTHS_SHOWN = 24;

/** Which tracks are shown, and where. */
export interface TrackChoice {
  /** Only tracks whose name, or that of their process, contains this; in lower case. */
  text: string;
  /** Whether tracks without rows in view are hidden. */
  hidesEmpty: boolean;
  /** Whether the tracks of a process with the most rows in view come first. */
  byActivity: boolean;
  pinned: Set<number>;
  hidden: Set<number>;
}

/** The name of a track with that of its process. */
export function trackName(track: TrackState): string {
  return [track.process, track.thread].filter(Boolean).join(" / ");
}

export class Model {
  readonly choice: TrackChoice = { text: "", hidesEmpty: false, byActivity: false, pinned: new Set(), hidden: new Set() };
  /** The number of rows in view of tracks that have some, if that is asked for. */
  active = new Map<number, number>();
  sessions: SessionState[] = [];
  tracks = new Map<number, TrackState>();
  names: string[] = [];
  histogram: HistogramState | null = null;
  rows = new Map<number, Rows>();
  kept = 0;
  /** The number of packets that the filter has been applied to. */
  filteredPackets = 0;
  droppedUntil: bigint | null = null;
  first: bigint | null = null;
  isLive = false;
  /** Names in the filter that no event has; empty if there are none. */
  filterHint = "";
  /** What a click has chosen, of a session or process. */
  private readonly chosenFolds = new Map<string, boolean>();
  lanes: Lane[] = [];
  height = 0;
  /** The process of each thread, by the name of its track. */
  private readonly processes = new Map<string, string>();
  private edge: bigint | null = null;
  private edgeAt = 0;
  /** When the latest event was, by the clock of the page. */
  private latestAt: number | null = null;

  /** The end of the timeline now. */
  edgeNow(now: number): bigint | null {
    if (this.edge === null || !this.isLive) {
      return this.edge;
    }
    return this.edge + BigInt(Math.round((now - this.edgeAt) * 1e6));
  }

  /** Milliseconds since the latest event of a live session. */
  lagNow(now: number): number | null {
    return this.latestAt === null ? null : Math.max(0, now - this.latestAt);
  }

  private setLatest(age: number | null, now: number): void {
    // What the network delays looks older than it is.
    this.latestAt = age === null ? null : Math.max(now - age, this.latestAt ?? -Infinity);
  }

  /** Forgets everything: a new connection tells it again. */
  reset(): void {
    this.tracks.clear();
    this.names = [];
    this.rows.clear();
    this.sessions = [];
    this.active.clear();
    this.processes.clear();
    this.choice.pinned.clear();
    this.choice.hidden.clear();
    this.histogram = null;
    this.edge = null;
    this.latestAt = null;
  }

  applyState(state: StateMessage, now: number): void {
    this.sessions = state.sessions;
    const lags = state.sessions.flatMap((session) => (session.lag === null ? [] : [session.lag]));
    this.setLatest(lags.length === 0 ? null : Math.min(...lags), now);
    for (const id of state.removedTracks) {
      this.processes.delete(this.tracks.get(id)?.thread ?? "");
      this.tracks.delete(id);
      this.rows.delete(id);
    }
    for (const track of state.tracks) {
      this.tracks.set(track.id, track);
      this.processes.set(track.thread, track.process);
    }
    for (const [place, name] of state.names.entries()) {
      this.names[state.firstName + place] = name;
    }
    if (state.active !== null) {
      this.active = new Map(state.active);
    }
    this.histogram = state.histogram ?? this.histogram;
    this.kept = state.rows;
    this.filteredPackets = state.filteredPackets;
    this.first = state.first === null ? null : BigInt(state.first);
    this.droppedUntil = state.droppedUntil === null ? null : BigInt(state.droppedUntil);
    this.isLive = state.isLive;
    this.filterHint = state.filterHint;
    if (state.edge !== null) {
      this.edge = BigInt(state.edge);
      this.edgeAt = now;
    }
    this.layOut();
  }

  applyFrame(frame: Frame, now: number): void {
    this.rows = frame.tracks;
    this.setLatest(frame.age === null ? null : frame.age / 1e6, now);
  }

  name(number: number): string {
    return this.names[number] ?? "";
  }

  /** The process of a thread that a CPU runs; the name itself if it is not known. */
  processOf(thread: string): string {
    return this.processes.get(thread) || thread;
  }

  toggle(lane: Lane): void {
    this.chosenFolds.set(lane.key, !lane.isCollapsed);
    this.layOut();
  }

  /** Whether the server is asked how many rows tracks have in view. */
  get countsRows(): boolean {
    return this.choice.hidesEmpty || this.choice.byActivity;
  }

  private isShown(track: TrackState): boolean {
    const { text, hidesEmpty, hidden } = this.choice;
    const isNamed = text === "" || `${track.process} ${track.thread}`.toLowerCase().includes(text);
    return isNamed && !hidden.has(track.id) && (!hidesEmpty || this.active.has(track.id));
  }

  private trackHeight(track: TrackState): number {
    const depths = Math.min(Math.max(track.depths, 1), MAX_DEPTHS_SHOWN);
    return track.isCounter ? COUNTER_HEIGHT : depths * ROW_HEIGHT + TRACK_PADDING;
  }

  /** Compares tracks of a session: processes with the most rows in view first, and so within them. */
  private compareActivity(tracks: TrackState[]): (one: TrackState, other: TrackState) => number {
    const rows = (track: TrackState): number => this.active.get(track.id) ?? 0;
    const process = (track: TrackState): string => `${track.pid} ${track.process}`;
    const ofProcess = new Map<string, number>();
    for (const track of tracks) {
      ofProcess.set(process(track), (ofProcess.get(process(track)) ?? 0) + rows(track));
    }
    return (one, other) =>
      ofProcess.get(process(other))! - ofProcess.get(process(one))! ||
      compareProcesses(one, other) ||
      rows(other) - rows(one) ||
      one.id - other.id;
  }

  /** Puts sessions, processes and tracks below each other; pinned tracks are above all. */
  layOut(): void {
    const lanes: Lane[] = [];
    let top = 0;
    const add = (lane: Omit<Lane, "top">): void => {
      lanes.push({ ...lane, top });
      top += lane.height;
    };
    const bySession = new Map<number, TrackState[]>();
    for (const track of this.tracks.values()) {
      const tracks = bySession.get(track.session);
      tracks === undefined ? bySession.set(track.session, [track]) : tracks.push(track);
    }
    for (const id of this.choice.pinned) {
      const track = this.tracks.get(id);
      const session = this.sessions.find((session) => session.id === track?.session);
      if (track !== undefined && session !== undefined) {
        add({ session, track, isCollapsed: false, kind: "track", label: trackName(track), key: "", height: this.trackHeight(track) });
      }
    }
    const inOrder = [...this.sessions].sort(compareSessions);
    const hasOthers = inOrder.some((session) => !isOfClock(session));
    for (const session of inOrder) {
      const key = `s${session.id}`;
      const isCollapsed = this.chosenFolds.get(key) ?? (session.events === 0 || (hasOthers && isOfClock(session)));
      const common = { session, track: null, isCollapsed };
      add({ ...common, kind: "session", label: session.name, key, height: SESSION_HEIGHT });
      const ofSession = isCollapsed ? [] : (bySession.get(session.id) ?? []);
      const shown = ofSession.filter((track) => this.isShown(track) && !this.choice.pinned.has(track.id));
      const tracks = shown.sort(this.choice.byActivity ? this.compareActivity(shown) : compareTracks);
      const keyOf = (track: TrackState): string => `s${session.id}p${track.pid ?? track.process}`;
      const processes = new Map<string, number>();
      for (const track of tracks) {
        processes.set(keyOf(track), (processes.get(keyOf(track)) ?? 0) + 1);
      }
      let process: string | null = null;
      let isProcessCollapsed = false;
      for (const track of tracks) {
        const processKey = keyOf(track);
        if (process !== processKey) {
          process = processKey;
          const isOnly = processes.get(processKey) === 1 && track.thread === track.process;
          // A thread that has the name of its process says it alone.
          isProcessCollapsed = !isOnly && this.chosenFolds.get(processKey) === true;
          if (track.process !== "" && !isOnly) {
            add({
              ...common,
              kind: "process",
              label: track.process,
              key: processKey,
              isCollapsed: isProcessCollapsed,
              height: PROCESS_HEIGHT,
            });
          }
        }
        if (!isProcessCollapsed) {
          add({ ...common, kind: "track", label: track.thread, key: "", track, height: this.trackHeight(track) });
        }
      }
    }
    this.lanes = lanes;
    this.height = top;
  }
}

/** Whether a session has only samples of a clock, which `consumer` writes: few want to see them. */
function isOfClock(session: SessionState): boolean {
  return /\/clock(-\d{8}-\d{6})?$/.test(session.name);
}

/** Live sessions first, those of clocks last of them; of those that have ended the latest first. */
function compareSessions(one: SessionState, other: SessionState): number {
  const order = one.isEnded ? other.id - one.id : one.id - other.id;
  const rank = (session: SessionState): number => 2 * Number(session.isEnded) + Number(isOfClock(session));
  return rank(one) - rank(other) || order;
}

function compareProcesses(one: TrackState, other: TrackState): number {
  return (one.pid ?? -1) - (other.pid ?? -1) || one.process.localeCompare(other.process);
}

function compareTracks(one: TrackState, other: TrackState): number {
  // CPUs are in order of their numbers, and threads in order of appearance.
  const cpus = one.process === "CPUs" ? one.thread.localeCompare(other.thread, "en", { numeric: true }) : 0;
  return compareProcesses(one, other) || Number(one.isCounter) - Number(other.isCounter) || cpus || one.id - other.id;
}
