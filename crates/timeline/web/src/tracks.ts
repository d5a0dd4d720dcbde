// Which tracks are shown: a part of the panel.

import { count } from "./format";
import type { Model, TrackChoice } from "./model";
import type { TrackState } from "./protocol";

/** Tracks that are listed. */
const MAX_LISTED = 300;

/** Shows what can be chosen, and all tracks, each with what can be done with it. */
export function showTracks(element: HTMLElement, model: Model, reveal: (track: number) => void, changed: () => void): void {
  const { choice } = model;
  const text = document.createElement("input");
  text.type = "search";
  text.placeholder = "Tracks whose name contains";
  text.ariaLabel = text.placeholder;
  text.value = choice.text;
  text.id = "tracks-text";
  const list = document.createElement("table");
  const apply = (): void => {
    model.layOut();
    listTracks(list, model, reveal, apply);
    changed();
  };
  text.addEventListener("input", () => {
    choice.text = text.value.trim().toLowerCase();
    apply();
  });
  const controls = document.createElement("div");
  controls.className = "actions";
  controls.append(
    text,
    checkbox("tracks-empty", "Hide those without events in view", choice, "hidesEmpty", apply),
    checkbox("tracks-activity", "Most events in view first", choice, "byActivity", apply),
  );
  element.replaceChildren(controls, list);
  listTracks(list, model, reveal, apply);
  element.hidden = false;
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

function listTracks(list: HTMLTableElement, model: Model, reveal: (track: number) => void, apply: () => void): void {
  const { text, pinned, hidden } = model.choice;
  const name = (track: TrackState): string => [track.process, track.thread].filter(Boolean).join(" / ");
  const all = [...model.tracks.values()].filter((track) => name(track).toLowerCase().includes(text));
  list.replaceChildren();
  for (const track of all.slice(0, MAX_LISTED)) {
    const line = list.insertRow();
    line.insertCell().append(button(name(track), `Go to ${name(track)}`, () => reveal(track.id)));
    line.insertCell().textContent = model.sessions.find((session) => session.id === track.session)?.name ?? "";
    line.insertCell().textContent = model.countsRows ? `${count(model.active.get(track.id) ?? 0)} in view` : "";
    for (const [set, on, off] of [[pinned, "Unpin", "Pin to the top"], [hidden, "Show", "Hide"]] as const) {
      const label = set.has(track.id) ? on : off;
      const toggle = (): void => {
        if (!set.delete(track.id)) {
          set.add(track.id);
        }
        apply();
      };
      line.insertCell().append(button(label, `${label}: ${name(track)}`, toggle));
    }
  }
  if (all.length > MAX_LISTED) {
    list.insertRow().insertCell().textContent = `and ${all.length - MAX_LISTED} more`;
  }
}

function button(text: string, label: string, action: () => void): Node {
  const made = document.createElement("button");
  made.textContent = text;
  made.ariaLabel = label;
  made.addEventListener("click", action);
  return made;
}
