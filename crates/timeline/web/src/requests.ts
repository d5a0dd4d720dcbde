// Requests that have an answer, each with its number.

import { Connection } from "./connection";
import { CountReply, DetailsReply, FilterReply, Reply, SearchReply, SummaryReply } from "./protocol";

export class Requests {
  private next = 1;
  private readonly pending = new Map<number, (reply: Reply) => void>();

  constructor(private readonly connection: Connection) {}

  /** What was asked on a connection that is lost is never answered. */
  reset(): void {
    this.pending.clear();
  }

  handle(reply: Reply): void {
    const then = this.pending.get(reply.number);
    this.pending.delete(reply.number);
    then?.(reply);
  }

  details(track: number, row: number, then: (reply: DetailsReply) => void): void {
    this.send({ type: "details", track, row }, then);
  }

  search(text: string, isWhole: boolean, from: bigint, isBackward: boolean, then: (reply: SearchReply) => void): void {
    this.send({ type: "search", text, isWhole, from: from.toString(), isBackward }, then);
  }

  count(from: bigint, to: bigint, then: (reply: CountReply) => void): void {
    this.send({ type: "count", from: from.toString(), to: to.toString() }, then);
  }

  summary(from: bigint, to: bigint, then: (reply: SummaryReply) => void): void {
    this.send({ type: "summary", from: from.toString(), to: to.toString() }, then);
  }

  filter(text: string, then: (reply: FilterReply) => void): void {
    this.send({ type: "filter", text }, then);
  }

  private send<R extends Reply>(request: object, then: (reply: R) => void): void {
    const number = this.next++;
    this.pending.set(number, then as (reply: Reply) => void);
    this.connection.send({ ...request, number });
  }
}
