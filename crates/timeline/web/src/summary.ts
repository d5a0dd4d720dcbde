// What the rows of a range amount to: tables of spans, events and counters, and a graph.

import { keepFocus } from "./focus";
import { count, duration } from "./format";
import { type Model, trackName } from "./model";
import type { FoundRow, SpanSummary, SummaryReply } from "./protocol";
import { colorIndex, type Theme } from "./theme";

const GRAPH_ROW_HEIGHT = 19;
/** Nodes that are narrower, in percent, are not drawn. */
const MIN_GRAPH_PERCENT = 0.15;

type Part = "spans" | "states" | "events" | "counters" | "graph";

interface Column<R> {
  title: string;
  help: string;
  text: (row: R) => string;
  /** What rows are put in order by; without it the column is text. */
  value?: (row: R) => number;
  /** The text without rounding, for those who ask. */
  exact?: (row: R) => string;
}

/** A column of durations in nanoseconds; null where it is not known. */
function durations<R>(title: string, help: string, ns: (row: R) => number | null): Column<R> {
  return {
    title,
    help,
    text: (row) => durationOr(ns(row), duration),
    value: (row) => ns(row) ?? -1,
    exact: (row) => durationOr(ns(row), (ns) => `${Math.round(ns).toLocaleString("en")} ns`),
  };
}

function durationOr(ns: number | null, text: (ns: number) => string): string {
  return ns === null ? "–" : text(ns);
}

/** A table whose columns put it in order. */
function table<R>(columns: Column<R>[], rows: R[], sorted: number, choose: (row: R) => void, sort: (column: number) => void): HTMLTableElement {
  const made = document.createElement("table");
  const head = made.createTHead().insertRow();
  for (const [place, column] of columns.entries()) {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    button.textContent = column.title;
    button.title = column.help;
    button.addEventListener("click", () => sort(place));
    cell.scope = "col";
    if (place === sorted) {
      cell.ariaSort = column.value === undefined ? "ascending" : "descending";
    }
    cell.append(button);
    head.append(cell);
  }
  const { value, text } = columns[sorted]!;
  const order = value === undefined ? (a: R, b: R) => text(a).localeCompare(text(b)) : (a: R, b: R) => value(b) - value(a);
  const body = made.createTBody();
  for (const row of [...rows].sort(order)) {
    const line = body.insertRow();
    for (const [place, column] of columns.entries()) {
      const cell = line.insertCell();
      if (place > 0) {
        cell.textContent = column.text(row);
        cell.title = column.exact?.(row) ?? "";
        continue;
      }
      // A button, so that the keyboard reaches it.
      const button = document.createElement("button");
      button.textContent = column.text(row);
      button.addEventListener("click", () => choose(row));
      cell.append(button);
    }
  }
  return made;
}

export class Summary {
  private reply: SummaryReply | null = null;
  private seconds = 0;
  private part: Part = "spans";
  /** The column that each part is put in order by. */
  private readonly sorted: Record<Part, number> = { spans: 2, states: 2, events: 1, counters: 0, graph: 0 };

  constructor(
    private readonly element: HTMLElement,
    private readonly model: Model,
    private readonly theme: () => Theme,
    private readonly show: (found: FoundRow) => void,
    private readonly showTrack: (track: number) => void,
  ) {}

  /** Shows that an answer is awaited. */
  wait(): void {
    this.reply = null;
    this.element.replaceChildren("counting");
    this.element.hidden = false;
  }

  /** Names have other numbers after a new connection. */
  forget(): void {
    this.reply = null;
  }

  hide(): void {
    this.element.hidden = true;
    this.reply = null;
  }

  /** Shows an answer, of a range of so many nanoseconds. */
  set(reply: SummaryReply, ns: number): void {
    this.reply = reply;
    this.seconds = ns / 1e9;
    this.draw();
  }

  draw(): void {
    const reply = this.reply;
    if (reply === null) {
      return;
    }
    if (this.part === "states" && reply.stateNames === 0) {
      this.part = "spans";
    }
    const parts: [Part, string][] = [
      ["spans", `Spans (${reply.spanNames})`],
      ...(reply.stateNames > 0 ? [["states", `States (${reply.stateNames})`] satisfies [Part, string]] : []),
      ["events", `Events (${reply.eventNames})`],
      ["counters", `Counters (${reply.counters.length})`],
      ["graph", "Graph"],
    ];
    const tabs = document.createElement("div");
    tabs.className = "group";
    tabs.role = "tablist";
    for (const [part, title] of parts) {
      const tab = document.createElement("button");
      tab.textContent = title;
      tab.role = "tab";
      tab.id = `summary-${part}`;
      tab.ariaSelected = String(part === this.part);
      tab.addEventListener("click", () => {
        this.part = part;
        this.draw();
      });
      tabs.append(tab);
    }
    const content = document.createElement("div");
    content.className = "summary";
    content.role = "tabpanel";
    content.setAttribute("aria-labelledby", `summary-${this.part}`);
    content.append(...this.content(reply));
    keepFocus(this.element, () => this.element.replaceChildren(tabs, content));
  }

  private content(reply: SummaryReply): (Node | string)[] {
    const sort = (column: number): void => {
      this.sorted[this.part] = column;
      this.draw();
    };
    const name = (of: { name: number }): string => this.model.name(of.name);
    const sorted = this.sorted[this.part];
    const own = durations<SpanSummary>("Self", "Time without the spans within; – where that is not known, because they belong to no thread", (of) => of.own);
    const spans = (what: string, rows: SpanSummary[]): Node =>
      table(
        [
          { title: "Name", help: "A click goes to the longest", text: name },
          { title: "Count", help: `${what} that are at least partly in the range`, text: (of) => of.count.toLocaleString("en"), value: (of) => of.count },
          durations<SpanSummary>("Total", "Time within the range", (of) => of.total),
          ...(what === "Spans" ? [own] : []),
          durations<SpanSummary>("Mean", "Total by count", (of) => of.total / of.count),
          durations<SpanSummary>("p50", `Half of the ${what.toLowerCase()} take no longer`, (of) => of.p50),
          durations<SpanSummary>("p99", `99 of 100 ${what.toLowerCase()} take no longer`, (of) => of.p99),
          durations<SpanSummary>("Max", "The longest", (of) => of.max),
        ],
        rows,
        sorted,
        (of) => this.show(of.longest),
        sort,
      );
    switch (this.part) {
      case "spans":
        return [
          spans("Spans", reply.spans),
          rest(reply.spanNames - reply.spans.length, "names with less time"),
          reply.isCoarse ? "percentiles are not exact: there are too many different durations" : "",
        ];
      case "states":
        return [spans("States", reply.states), rest(reply.stateNames - reply.states.length, "names with less time")];
      case "events":
        return [
          table(
            [
              { title: "Name", help: "A click goes to the first", text: name },
              { title: "Count", help: "Events in the range", text: (of) => of.count.toLocaleString("en"), value: (of) => of.count },
              { title: "Rate", help: "Events per second", text: (of) => `${count(of.count / this.seconds)}/s`, value: (of) => of.count },
            ],
            reply.events,
            sorted,
            (of) => this.show(of.first),
            sort,
          ),
          rest(reply.eventNames - reply.events.length, "names with fewer events"),
        ];
      case "counters": {
        const number = (value: number | null): string =>
          value === null ? "–" : value.toLocaleString("en", { maximumSignificantDigits: 6 });
        return [
          table(
            [
              { title: "Counter", help: "A click goes to its track", text: (of) => this.trackName(of.track) },
              { title: "Values", help: "Values in the range", text: (of) => of.count.toLocaleString("en"), value: (of) => of.count },
              { title: "Min", help: "The smallest, also one that lasts from before", text: (of) => number(of.min), value: (of) => of.min ?? 0 },
              { title: "Mean", help: "Over the time", text: (of) => number(of.mean), value: (of) => of.mean ?? 0 },
              { title: "Max", help: "The largest, also one that lasts from before", text: (of) => number(of.max), value: (of) => of.max ?? 0 },
            ],
            reply.counters,
            sorted,
            (of) => this.showTrack(of.track),
            sort,
          ),
        ];
      }
      case "graph":
        return [this.graph(reply)];
    }
  }

  private trackName(id: number): string {
    const track = this.model.tracks.get(id);
    return track === undefined ? "" : trackName(track);
  }

  /** Each name above those within it, as wide as its part of the time. */
  private graph(reply: SummaryReply): Node {
    const made = document.createElement("div");
    made.className = "graph";
    const whole = reply.graph.reduce((sum, node) => sum + (node.depth === 0 ? node.total : 0), 0);
    // Where the next node of each depth begins, in percent.
    const begins: number[] = [];
    let depths = 0;
    for (const node of reply.graph) {
      const begin = begins[node.depth] ?? 0;
      const width = (node.total / whole) * 100;
      begins[node.depth] = begin + width;
      begins[node.depth + 1] = begin;
      if (width < MIN_GRAPH_PERCENT) {
        continue;
      }
      depths = Math.max(depths, node.depth + 1);
      const name = this.model.name(node.name);
      const box = document.createElement("div");
      box.textContent = name;
      box.title = `${name}: ${duration(node.total)}, ${width.toFixed(1)} %`;
      const { palette } = this.theme();
      box.style.left = `${begin}%`;
      box.style.width = `${width}%`;
      box.style.top = `${node.depth * GRAPH_ROW_HEIGHT}px`;
      box.style.background = palette[colorIndex(name)]!;
      made.append(box);
    }
    made.style.height = `${depths * GRAPH_ROW_HEIGHT}px`;
    return made;
  }
}

function rest(names: number, what: string): string {
  return names > 0 ? `and ${names.toLocaleString("en")} more ${what}` : "";
}
