// The WebSocket to the server, opened again when it was lost.

const FIRST_BACKOFF_MS = 250;
const MAX_BACKOFF_MS = 4000;

export interface Handlers {
  text(text: string): void;
  binary(buffer: ArrayBuffer): void;
  /** A new connection: the server knows nothing of this page. */
  opened(): void;
  lost(): void;
}

export class Connection {
  private socket: WebSocket | null = null;
  private backoff = FIRST_BACKOFF_MS;

  constructor(private readonly handlers: Handlers) {
    this.open();
  }

  send(message: object): void {
    if (this.socket?.readyState === WebSocket.OPEN) {
      this.socket.send(JSON.stringify(message));
    }
  }

  private open(): void {
    const url = new URL("socket", location.href);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    url.search = location.search;
    url.hash = "";
    const socket = new WebSocket(url);
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.backoff = FIRST_BACKOFF_MS;
      this.handlers.opened();
    };
    socket.onmessage = (event: MessageEvent<string | ArrayBuffer>) => {
      if (typeof event.data === "string") {
        this.handlers.text(event.data);
      } else {
        this.handlers.binary(event.data);
      }
    };
    socket.onclose = () => {
      this.handlers.lost();
      setTimeout(() => this.open(), this.backoff);
      this.backoff = Math.min(2 * this.backoff, MAX_BACKOFF_MS);
    };
  }
}
