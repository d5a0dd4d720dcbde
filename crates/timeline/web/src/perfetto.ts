// Opens a trace in ui.perfetto.dev: the page there asks for nothing, and is told by postMessage.

const ORIGIN = "https://ui.perfetto.dev";
const PING_INTERVAL_MS = 50;
const MAX_PINGS = 600;

/** The form of a download, as in crates/timeline/src/download.rs. */
export type Format = "perfetto" | "tef" | "json" | "ctf";

/** The address of a download. */
export function downloadUrl(format: Format, from: bigint, to: bigint, filter: string): string {
  const url = new URL("download", location.href);
  url.hash = "";
  const token = new URLSearchParams(location.search).get("token");
  const query = new URLSearchParams({ format, from: from.toString(), to: to.toString() });
  if (filter !== "") {
    query.set("filter", filter);
  }
  if (token !== null) {
    query.set("token", token);
  }
  url.search = query.toString();
  return url.href;
}

/** Fetches a trace, and passes it to Perfetto in a new tab. Returns why that failed; empty if it has not. */
export async function openInPerfetto(url: string, title: string): Promise<string> {
  // A tab can only be opened at once: not when the trace has arrived.
  const tab = window.open(ORIGIN);
  if (tab === null) {
    return "the browser does not allow to open a tab";
  }
  const response = await fetch(url);
  if (!response.ok) {
    tab.close();
    return (await response.text()).trim();
  }
  const buffer = await response.arrayBuffer();
  await isReady(tab);
  tab.postMessage({ perfetto: { buffer, title } }, ORIGIN);
  return "";
}

/** Waits until the page answers. */
function isReady(tab: Window): Promise<void> {
  return new Promise((resolve, reject) => {
    let pings = 0;
    const end = (): void => {
      clearInterval(timer);
      removeEventListener("message", listen);
    };
    const listen = (event: MessageEvent): void => {
      if (event.origin === ORIGIN && event.data === "PONG") {
        end();
        resolve();
      }
    };
    const timer = setInterval(() => {
      pings += 1;
      if (pings > MAX_PINGS) {
        end();
        reject(new Error("ui.perfetto.dev does not answer"));
      }
      tab.postMessage("PING", ORIGIN);
    }, PING_INTERVAL_MS);
    addEventListener("message", listen);
  });
}
