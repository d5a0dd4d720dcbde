// What the server has told: sessions, tracks, names and the rows of the latest frame.

import type { Frame, HistogramState, Rows, SessionState, StateMessage, TrackState } from "./protocol";

export interface Lane {
  kind: "session" | "process" | "track";
  label: string;
  /** What is collapsed by a click, of a session or process. */
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

export class Model {
  sessions: SessionState[] = [];
  tracks = new Map<number, TrackState>();
  names: string[] = [];
  histogram: HistogramState | null = null;
  rows = new Map<number, Rows>();
  kept = 0;
  droppedUntil: bigint | null = null;
  first: bigint | null = null;
  isLive = false;
  /** Names in the filter that no event has; empty if there are none. */
  filterHint = "";
  collapsed = new Set<string>();
  lanes: Lane[] = [];
  height = 0;
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
    this.histogram = null;
    this.edge = null;
    this.latestAt = null;
  }

  applyState(state: StateMessage, now: number): void {
    this.sessions = state.sessions;
    const lags = state.sessions.flatMap((session) => (session.lag === null ? [] : [session.lag]));
    this.setLatest(lags.length === 0 ? null : Math.min(...lags), now);
    for (const id of state.removedTracks) {
      this.tracks.delete(id);
      this.rows.delete(id);
    }
    for (const track of state.tracks) {
      this.tracks.set(track.id, track);
    }
    for (const [place, name] of state.names.entries()) {
      this.names[state.firstName + place] = name;
    }
    this.histogram = state.histogram ?? this.histogram;
    this.kept = state.rows;
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

  toggle(key: string): void {
    if (!this.collapsed.delete(key)) {
      this.collapsed.add(key);
    }
    this.layOut();
  }

  /** Puts sessions, processes and tracks below each other. */
  private layOut(): void {
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
    const inOrder = [...this.sessions].sort(compareSessions);
    for (const session of inOrder) {
      const key = `s${session.id}`;
      const isCollapsed = this.collapsed.has(key);
      const common = { session, track: null, isCollapsed };
      add({ ...common, kind: "session", label: session.name, key, height: SESSION_HEIGHT });
      const tracks = isCollapsed ? [] : (bySession.get(session.id) ?? []).sort(compareTracks);
      let process: string | null = null;
      let isProcessCollapsed = false;
      for (const track of tracks) {
        const processKey = `s${session.id}p${track.pid ?? track.process}`;
        if (process !== processKey) {
          process = processKey;
          isProcessCollapsed = this.collapsed.has(processKey);
          if (track.process !== "") {
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
          const depths = Math.min(Math.max(track.depths, 1), MAX_DEPTHS_SHOWN);
          const height = track.isCounter ? COUNTER_HEIGHT : depths * ROW_HEIGHT + TRACK_PADDING;
          add({ ...common, kind: "track", label: track.thread, key: "", track, height });
        }
      }
    }
    this.lanes = lanes;
    this.height = top;
  }
}

/** Live sessions first; of those that have ended the latest first. */
function compareSessions(one: SessionState, other: SessionState): number {
  const order = one.isEnded ? other.id - one.id : one.id - other.id;
  return Number(one.isEnded) - Number(other.isEnded) || order;
}

function compareTracks(one: TrackState, other: TrackState): number {
  return (
    (one.pid ?? -1) - (other.pid ?? -1) ||
    one.process.localeCompare(other.process) ||
    Number(one.isCounter) - Number(other.isCounter) ||
    one.id - other.id
  );
}
