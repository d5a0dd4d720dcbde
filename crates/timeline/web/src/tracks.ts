// Which tracks are shown: a part of the panel.

import { keepFocus } from "./focus";
import { count } from "./format";
import { type Model, type TrackChoice, trackName } from "./model";
import type { TrackState } from "./protocol";

/** Tracks that are listed. */
const MAX_LISTED = 300;

/** A line of the list. */
interface Listed {
  track: TrackState;
  session: string;
  rows: string;
}

/** What the list of tracks does. */
export interface TrackActions {
  reveal(track: number): void;
  changed(): void;
}

/** Shows what can be chosen, and all tracks, each with what can be done with it. */
export class TrackList {
  private readonly list = document.createElement("table");
  /** What the list was made of, so that it is made again only if it differs. */
  private listed = "";

  constructor(
    private readonly element: HTMLElement,
    private readonly model: Model,
    private readonly actions: TrackActions,
  ) {}

  show(): void {
    const { choice } = this.model;
    const text = document.createElement("input");
    text.type = "search";
    text.placeholder = "Tracks whose name contains";
    text.ariaLabel = text.placeholder;
    text.value = choice.text;
    text.id = "tracks-text";
    text.addEventListener("input", () => {
      choice.text = text.value.trim().toLowerCase();
      this.apply();
    });
    const controls = document.createElement("div");
    controls.className = "actions";
    controls.append(
      text,
      checkbox("tracks-empty", "Hide those without events in view", choice, "hidesEmpty", () => this.apply()),
      checkbox("tracks-activity", "Most events in view first", choice, "byActivity", () => this.apply()),
    );
    this.element.replaceChildren(controls, this.list);
    this.element.hidden = false;
    this.update();
  }

  private apply(): void {
    this.model.layOut();
    this.update();
    this.actions.changed();
  }

  /** Lists the tracks as they are now. */
  update(): void {
    const { model } = this;
    const { text, pinned, hidden } = model.choice;
    const all = [...model.tracks.values()].filter((track) => trackName(track).toLowerCase().includes(text));
    const shown = all.slice(0, MAX_LISTED).map((track) => ({
      track,
      session: model.sessions.find((session) => session.id === track.session)?.name ?? "",
      rows: model.countsRows ? `${count(model.active.get(track.id) ?? 0)} in view` : "",
      isPinned: pinned.has(track.id),
      isHidden: hidden.has(track.id),
    }));
    const listed = JSON.stringify([shown, all.length]);
    if (listed === this.listed) {
      return;
    }
    this.listed = listed;
    keepFocus(this.list, () => this.fill(shown, all.length));
  }

  private fill(shown: Listed[], all: number): void {
    const { pinned, hidden } = this.model.choice;
    this.list.replaceChildren();
    for (const { track, session, rows } of shown) {
      const name = trackName(track);
      const line = this.list.insertRow();
      line.insertCell().append(button(name, `Go to ${name}`, () => this.actions.reveal(track.id)));
      line.insertCell().textContent = session;
      line.insertCell().textContent = rows;
      for (const [set, on, off] of [[pinned, "Unpin", "Pin to the top"], [hidden, "Show", "Hide"]] as const) {
        const label = set.has(track.id) ? on : off;
        const toggle = (): void => {
          if (!set.delete(track.id)) {
            set.add(track.id);
          }
          this.apply();
        };
        line.insertCell().append(button(label, `${label}: ${name}`, toggle));
      }
    }
    if (all > MAX_LISTED) {
      this.list.insertRow().insertCell().textContent = `and ${all - MAX_LISTED} more`;
    }
  }
}

function checkbox(id: string, label: string, choice: TrackChoice, member: "hidesEmpty" | "byActivity", apply: () => void): Node {
  const box = document.createElement("input");
  box.type = "checkbox";
  box.id = id;
  box.checked = choice[member];
  box.addEventListener("change", () => {
    choice[member] = box.checked;
    apply();
  });
  const made = document.createElement("label");
  made.append(box, ` ${label}`);
  return made;
}

function button(text: string, label: string, action: () => void): Node {
  const made = document.createElement("button");
  made.textContent = text;
  made.ariaLabel = label;
  made.addEventListener("click", action);
  return made;
}
