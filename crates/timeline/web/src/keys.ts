// The keys, and the overlay that lists them.

export interface Key {
  /** What `KeyboardEvent.key` is, of letters in lower case. */
  keys: string[];
  /** How the keys are shown. */
  shown: string[];
  what: string;
  action: () => void;
}

/** What the mouse does, for the overlay. */
const MOUSE: [string, string][] = [
  ["drag", "pan"],
  ["wheel", "scroll"],
  ["Ctrl wheel", "zoom"],
  ["Shift wheel", "pan"],
  ["click", "show an event with its fields"],
  ["double-click", "zoom to a span"],
  ["Shift drag", "select a range; also drag on the line of times"],
];

/** Calls the actions of keys, and shows the overlay. */
export function listenForKeys(keys: Key[], overlay: HTMLDialogElement, changed: () => void): void {
  const list = overlay.querySelector("dl")!;
  for (const [names, what] of [...keys.map((key): [string[], string] => [key.shown, key.what]), ...MOUSE.map(([how, what]): [string[], string] => [[how], what])]) {
    const [term, text] = [document.createElement("dt"), document.createElement("dd")];
    for (const name of names) {
      const shown = document.createElement("kbd");
      shown.textContent = name;
      term.append(shown);
    }
    text.textContent = what;
    list.append(term, text);
  }
  addEventListener("keydown", (event) => {
    const isFind = event.key.toLowerCase() === "f" && (event.ctrlKey || event.metaKey) && !event.altKey;
    const pressed = isFind ? "/" : event.key.length === 1 ? event.key.toLowerCase() : event.key;
    const found = keys.find((key) => key.keys.includes(pressed));
    const isTyping = event.target instanceof HTMLInputElement;
    const isButton = event.target instanceof HTMLButtonElement && (event.key === " " || event.key === "Enter");
    const isChord = !isFind && (event.ctrlKey || event.metaKey || event.altKey);
    if (found === undefined || isChord || isButton || (isTyping && !isFind) || overlay.open) {
      return;
    }
    event.preventDefault();
    found.action();
    changed();
  });
}
