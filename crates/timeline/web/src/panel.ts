// The panel below the timeline: an event with its fields, a range or what is in view with what it amounts to, and what a search has found.

import { dayAndTime, duration, exactDuration, time } from "./format";
import { type Model, trackName } from "./model";
import { type Arrow, type ArrowEnd, type DetailsReply, type FoundRow, Kind, type SearchReply, hasDuration } from "./protocol";
import { type Format, downloadUrl, openInPerfetto } from "./perfetto";
import type { Requests } from "./requests";
import { Summary } from "./summary";
import type { Range, Timeline } from "./timeline";
import { TrackList } from "./tracks";
import type { Viewport } from "./viewport";

const FORMATS: readonly Format[] = ["perfetto", "tef", "json", "ctf"];
/** Time between two summaries of what is in view, in milliseconds. */
const SUMMARY_INTERVAL_MS = 1000;

/** An event as the panel shows it. */
export interface PanelEvent {
  track: number;
  row: number;
  name: string;
  kind: Kind;
  begin: bigint;
  end: bigint | null;
  value: number;
  count: number;
  depth: number;
}

/** What the page does for the panel. */
export interface PanelHost {
  /** The filter that downloads have. */
  filter(): string;
  setFilter(text: string): void;
  /** Goes to a row and shows it. */
  show(found: FoundRow): void;
  /** Goes to an end of an arrow. */
  showEnd(end: ArrowEnd): void;
  changed(): void;
}

function element<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

export class Panel {
  /** What is shown of a span or an event. */
  event: PanelEvent | null = null;
  private readonly summary: Summary;
  private readonly tracks: TrackList;
  /** What the summary of the view depends on besides the view. */
  private countedKey = "";
  /** What is in view was summarized last, while it is followed. */
  private inView: { from: bigint; to: bigint; at: number; isAnswered: boolean } | null = null;

  constructor(
    private readonly model: Model,
    private readonly timeline: Timeline,
    private readonly viewport: Viewport,
    private readonly asked: Requests,
    private readonly host: PanelHost,
  ) {
    const show = (found: FoundRow): void => host.show(found);
    const reveal = (track: number): void => {
      timeline.reveal(track, 0);
      host.changed();
    };
    this.summary = new Summary(element("panel-summary"), model, () => timeline.theme, show, reveal);
    this.tracks = new TrackList(element("panel-tracks"), model, { reveal, changed: () => host.changed() });
    element("open-perfetto").addEventListener("click", () => this.openInPerfetto());
  }

  close(): void {
    this.timeline.range = null;
    this.timeline.selection = null;
    element("panel").hidden = true;
    this.clear();
    this.host.changed();
  }

  private clear(): void {
    this.event = null;
    this.timeline.arrows = [];
    this.inView = null;
    this.summary.hide();
    element("panel-found").hidden = true;
    element("panel-tracks").hidden = true;
    element("panel-actions").hidden = true;
    const copy = element("copy-json");
    copy.hidden = true;
    copy.textContent = "Copy as JSON";
    element("panel-facts").replaceChildren();
  }

  private open(title: string): void {
    this.clear();
    element("panel").hidden = false;
    element("panel-title").textContent = title;
    this.host.changed();
  }

  private trackName(id: number): string {
    const track = this.model.tracks.get(id);
    const session = this.model.sessions.find((session) => session.id === track?.session);
    return [session?.name, track && trackName(track)].filter(Boolean).join(" / ");
  }

  showEvent(event: PanelEvent): void {
    const selection = { track: event.track, row: event.row };
    this.timeline.range = null;
    this.timeline.selection = selection;
    this.open(event.name);
    this.event = event;
    this.uncover(event);
    const facts: [string, string][] = [["Begin", dayAndTime(event.begin)]];
    if (hasDuration(event.kind) || event.kind === Kind.Loss) {
      const ns = event.end === null ? null : event.end - event.begin;
      facts.push(["End", event.end === null ? "not ended" : dayAndTime(event.end)]);
      facts.push(["Duration", ns === null ? "not ended" : `${duration(Number(ns))} (${exactDuration(ns)})`]);
    }
    if (event.kind === Kind.Counter) {
      facts.push(["Value", String(event.value)]);
    }
    if (event.count > 1) {
      const text = `${event.count}, too close to be told apart at this zoom; the name is that of the longest`;
      facts.push(["Events", text]);
    }
    facts.push(["Track", this.trackName(event.track)]);
    showFacts(facts);
    if (event.count === 1 && event.kind !== Kind.Loss) {
      this.asked.details(event.track, event.row, (reply) => {
        if (this.timeline.selection === selection) {
          this.showDetails(event, facts, reply);
        }
      });
    }
  }

  /** Scrolls to a row that the panel covers. */
  private uncover(event: PanelEvent): void {
    this.timeline.resize();
    this.timeline.reveal(event.track, event.depth);
  }

  private showDetails(event: PanelEvent, known: [string, string][], reply: DetailsReply): void {
    const arrows = reply.arrows.map((arrow) => this.arrowFact(event, arrow));
    const within: [string, string][] = reply.parents.length > 0 ? [["Within", reply.parents.join(" › ")]] : [];
    const facts = [...known, ...arrows.map(({ fact }) => fact), ...within];
    this.timeline.arrows = reply.arrows;
    this.host.changed();
    this.showFields(facts, reply);
    this.uncover(event);
    const values = element("panel-facts").querySelectorAll("dd");
    for (const [place, { other }] of arrows.entries()) {
      const button = document.createElement("button");
      button.className = "small";
      button.textContent = "show";
      button.ariaLabel = "Show the other end of the arrow";
      button.addEventListener("click", () => this.host.showEnd(other));
      values[known.length + place]!.append(" ", button);
    }
  }

  /** What an arrow says of a row, and its other end. */
  private arrowFact(event: PanelEvent, arrow: Arrow): { fact: [string, string]; other: ArrowEnd } {
    const at = BigInt(arrow.to.time);
    const isTo = arrow.to.track === event.track && event.begin <= at && (event.end === null || at <= event.end);
    const other = isTo ? arrow.from : arrow.to;
    const name = this.model.name(arrow.name);
    const thread = this.model.tracks.get(other.track)?.thread ?? "";
    if (!arrow.isWakeup) {
      const where = isTo && arrow.cause !== thread ? `${arrow.cause}, ${this.trackName(other.track)}` : this.trackName(other.track);
      return { fact: [isTo ? "Flow from" : "Flow to", `${where} (${name})`], other };
    }
    if (!isTo) {
      return { fact: ["Wake-up", `woke ${thread}`], other };
    }
    const by = arrow.cause === name ? `woken on ${name}` : `woken by ${arrow.cause} on ${name}`;
    // A state that ends with the wake-up was a wait for it.
    const isWait = event.kind === Kind.State && event.end === BigInt(arrow.to.time) && event.begin < event.end;
    return { fact: ["Wake-up", isWait ? `waited ${duration(Number(event.end! - event.begin))}, ${by}` : by], other };
  }

  private showFields(facts: [string, string][], reply: DetailsReply): void {
    if (reply.fields.length === 0) {
      showFacts([...facts, ["Fields", "the packet of this event is no longer kept"]]);
      return;
    }
    showFacts([...facts, ...reply.fields.map((field): [string, string] => [field.name, field.value])]);
    const values = element("panel-facts").querySelectorAll("dd");
    for (const [place, { name, value, filter }] of reply.fields.entries()) {
      if (filter !== null) {
        const button = document.createElement("button");
        button.className = "small";
        button.textContent = "filter";
        button.title = filter;
        button.ariaLabel = `Show only events with ${name} ${value}`;
        button.addEventListener("click", () => this.host.setFilter(filter));
        values[facts.length + place]!.append(" ", button);
      }
    }
    const copy = element("copy-json");
    copy.hidden = reply.json === "";
    copy.onclick = () => {
      const refused = (): void => {
        copy.textContent = "The browser does not allow it";
      };
      // Without HTTPS, pages of other hosts have no clipboard.
      if (!isSecureContext) {
        refused();
        return;
      }
      navigator.clipboard.writeText(reply.json).then(() => (copy.textContent = "Copied"), refused);
    };
  }

  showRange(range: Range): void {
    this.timeline.selection = null;
    this.timeline.range = range;
    this.open("Selected range");
    element("panel-actions").hidden = false;
    element("action-result").textContent = "";
    for (const format of FORMATS) {
      const link = element<HTMLAnchorElement>(`download-${format}`);
      link.href = downloadUrl(format, range.from, range.to, format === "ctf" ? "" : this.host.filter());
      link.hidden = false;
    }
    element("open-perfetto").hidden = false;
    const ns = range.to - range.from;
    const facts: [string, string][] = [
      ["Begin", dayAndTime(range.from)],
      ["End", dayAndTime(range.to)],
      ["Duration", `${duration(Number(ns))} (${exactDuration(ns)})`],
    ];
    // Not the number of events: two of them make a span.
    const counted = "Spans, events, values";
    showFacts([...facts, [counted, "counting"]]);
    this.asked.count(range.from, range.to, (reply) => {
      if (this.timeline.range === range) {
        showFacts([...facts, [counted, reply.rows.toLocaleString("en")]]);
        if (reply.refused !== "") {
          for (const id of ["open-perfetto", ...FORMATS.map((format) => `download-${format}`)]) {
            element(id).hidden = true;
          }
          element("action-result").textContent = `nothing to download: ${reply.refused}`;
        }
      }
    });
    this.summary.wait();
    this.asked.summary(range.from, range.to, (reply) => {
      if (this.timeline.range === range) {
        this.summary.set(reply, Number(ns));
      }
    });
  }

  /** Shows what the visible part amounts to, and goes on with it when it changes. */
  showView(): void {
    this.timeline.range = null;
    this.timeline.selection = null;
    this.open("In view");
    this.summary.wait();
    this.inView = { from: 0n, to: 0n, at: 0, isAnswered: true };
  }

  /** Shows which tracks there are, to choose from. */
  showTracks(): void {
    this.timeline.range = null;
    this.timeline.selection = null;
    this.open("Tracks");
    this.tracks.show();
  }

  /** To be called when the server has told its state. */
  stateChanged(): void {
    if (!element("panel-tracks").hidden) {
      this.tracks.update();
    }
    const key = `${this.model.kept} ${this.model.filteredPackets}`;
    // Events of the view may have come late, or have been looked at by the filter only now.
    if (this.inView !== null && this.inView.isAnswered && key !== this.countedKey) {
      this.countedKey = key;
      this.askAgain();
    }
  }

  /** To be called again and again. */
  update(now: number): void {
    const last = this.inView;
    const { from, to } = this.viewport;
    if (last === null || !last.isAnswered || now - last.at < SUMMARY_INTERVAL_MS || (from === last.from && to === last.to)) {
      return;
    }
    const asked = { from, to, at: now, isAnswered: false };
    this.inView = asked;
    this.asked.summary(from, to, (reply) => {
      if (this.inView === asked) {
        asked.isAnswered = true;
        showFacts([
          ["Begin", dayAndTime(from)],
          ["Duration", duration(Number(to - from))],
        ]);
        this.summary.set(reply, Number(to - from));
      }
    });
  }

  /** Asks again for what is shown: the events have changed, or those that pass the filter. */
  askAgain(): void {
    if (this.inView !== null) {
      this.inView = { from: 0n, to: 0n, at: this.inView.at, isAnswered: true };
    } else if (this.timeline.range !== null) {
      this.showRange(this.timeline.range);
    }
  }

  /** What was asked is never answered, and names and tracks have other numbers on the next connection. */
  connectionLost(): void {
    this.summary.forget();
    if (!element("panel-tracks").hidden) {
      this.close();
    }
  }

  themeChanged(): void {
    this.summary.draw();
  }

  /** Lists what was found below the event that is shown. */
  listFound(text: string, reply: SearchReply): void {
    const rows = reply.hits.map((found, place) => {
      const item = document.createElement("li");
      const button = document.createElement("button");
      const begin = BigInt(found.begin);
      const ns = found.end === null || !hasDuration(found.kind) ? null : Number(BigInt(found.end) - begin);
      const parts = [time(begin), this.model.name(found.name), ns === null ? "" : duration(ns), this.trackName(found.track)];
      button.textContent = parts.filter(Boolean).join("  ·  ");
      button.addEventListener("click", () => {
        this.host.show(found);
        this.listFound(text, reply);
        // The list is another one now.
        element("panel-found").querySelectorAll("button")[place]?.focus();
      });
      item.append(button);
      return item;
    });
    const title = document.createElement("p");
    title.textContent = `${reply.total.toLocaleString("en")} names contain “${text}”, these from here on:`;
    const list = document.createElement("ol");
    list.append(...rows);
    const found = element("panel-found");
    found.replaceChildren(title, list);
    found.hidden = false;
  }

  private openInPerfetto(): void {
    if (this.timeline.range === null) {
      return;
    }
    const result = element("action-result");
    const url = element<HTMLAnchorElement>("download-perfetto").href;
    result.textContent = "opening";
    openInPerfetto(url, `test-live ${dayAndTime(this.timeline.range.from)}`).then(
      (error) => (result.textContent = error),
      (error: unknown) => (result.textContent = String(error)),
    );
  }
}

function showFacts(facts: [string, string][]): void {
  const nodes = facts.flatMap(([name, value]) => {
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    [term.textContent, text.textContent] = [name, value];
    return [term, text];
  });
  element("panel-facts").replaceChildren(...nodes);
}
