// Light and dark: the colours of the canvases.

export interface Theme {
  background: string;
  surface: string;
  line: string;
  text: string;
  quiet: string;
  accent: string;
  red: string;
  lossFill: string;
  rowText: string;
  /** The colours of names, and after them those of states. */
  palette: string[];
  isDark: boolean;
}

// Of about the same lightness, so that the text on all of them can be read.
const LIGHT = ["#a9cdf6", "#b6e0b0", "#f6cf9a", "#d9c3f2", "#9fdcd6", "#f4bccb", "#d6d99a", "#c1cbdb", "#f2c1a6", "#aed7ee"];
const DARK = ["#2f5f96", "#376f3a", "#86602a", "#64488f", "#22706b", "#8b3f57", "#676b25", "#4d5a6d", "#8a4e31", "#2b6b86"];

/** The number of colours that names have. */
export const NAME_COLORS = LIGHT.length;

/** The states of threads, as the server names them, in light and in dark. All others have the last colours. */
const STATES: [string, string, string][] = [
  ["Running", "#7cc98a", "#2c7a41"],
  ["Interrupted", "#c9a9ee", "#7650a8"],
  ["Runnable", "#cdeb9c", "#5f7a1f"],
  ["Runnable (preempted)", "#e3e68f", "#77701c"],
  ["Sleeping", "#e4e8ed", "#2b3138"],
  ["Uninterruptible sleep", "#f2a48f", "#9a4630"],
  ["", "#d3d8de", "#3b434c"],
];

/** The colour of the state of a thread; null if the text is none. */
export function stateColor(name: string): number | null {
  const place = STATES.findIndex(([state]) => state === name);
  const isOther = ["Stopped", "Traced", "Parked", "Idle"].includes(name);
  return place >= 0 ? NAME_COLORS + place : isOther ? NAME_COLORS + STATES.length - 1 : null;
}

const KEY = "test-live-theme";

function stored(): string | null {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null;
  }
}

export function isDark(): boolean {
  const chosen = stored();
  return chosen === null ? matchMedia("(prefers-color-scheme: dark)").matches : chosen === "dark";
}

export function toggleTheme(): void {
  try {
    localStorage.setItem(KEY, isDark() ? "light" : "dark");
  } catch {
    // Without storage the choice lasts as long as the page.
  }
}

/** Applies the theme to the page, and returns its colours. */
export function applyTheme(): Theme {
  const dark = isDark();
  document.documentElement.dataset["theme"] = dark ? "dark" : "light";
  const style = getComputedStyle(document.documentElement);
  const color = (name: string): string => style.getPropertyValue(`--${name}`).trim();
  return {
    background: color("background"),
    surface: color("surface"),
    line: color("line"),
    text: color("text"),
    quiet: color("quiet"),
    accent: color("accent"),
    red: color("red"),
    lossFill: dark ? "rgba(255,107,107,0.32)" : "rgba(201,37,45,0.22)",
    rowText: dark ? "#f4f6f8" : "#12161b",
    palette: [...(dark ? DARK : LIGHT), ...STATES.map(([, light, darker]) => (dark ? darker : light))],
    isDark: dark,
  };
}

/** The colour of a name: always the same for the same name. */
export function colorIndex(name: string): number {
  let hash = 2166136261;
  for (let at = 0; at < name.length; at++) {
    hash = Math.imul(hash ^ name.charCodeAt(at), 16777619);
  }
  return ((hash ^ (hash >>> 15)) >>> 0) % NAME_COLORS;
}
