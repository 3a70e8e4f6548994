// Stream hub: bounded streams over one endpoint. A writer at one peer sends items to the reader with the same id at the other
// peer. Both peers create one hub on the same channel. All entries of one turn of the event loop are sent as ONE message.
import assert from "node:assert";
import { type Endpoint, goneError, type PeerExit } from "../endpoint/endpoint.ts";
import { Reader, type StreamReader, type StreamWriter, Writer, type WriterHooks } from "./stream-ends.ts";

export interface StreamHubOptions {
  readonly channel: string;
  /** Number of unconsumed items of one stream at which write() returns false. Must be the same at both peers. */
  readonly window: number;
}

/** One entry of a message. Items and end are for the peer's reader; credit and cancel are for its writer. */
type Entry =
  | readonly [kind: "items", id: number, items: unknown[]]
  | readonly [kind: "end", id: number]
  | readonly [kind: "credit", id: number, count: number]
  | readonly [kind: "cancel", id: number];

export class StreamHub {
  readonly #endpoint: Endpoint;
  readonly #channel: string;
  readonly #window: number;
  readonly #writers = new Map<number, Writer<never>>();
  readonly #readers = new Map<number, Reader<unknown>>();
  #outbox: Entry[] = [];
  /** Items in the outbox, by stream id. Further items of a stream are appended to its list. */
  readonly #outboxItems = new Map<number, unknown[]>();
  #exit: PeerExit | null = null;

  constructor(endpoint: Endpoint, options: StreamHubOptions) {
    assert(options.window >= 1, `a stream's window is at least 1, not ${options.window}`);
    this.#endpoint = endpoint;
    this.#channel = options.channel;
    this.#window = options.window;
    endpoint.receive(options.channel, (entries: readonly Entry[]) => {
      for (const entry of entries) this.#arrived(entry);
    });
    endpoint.exit.then((exit) => this.#peerGone(exit));
  }

  /** Creates the writing end of stream `id`. The peer that reads chooses the ids, and uses each id once. */
  writer<T>(id: number, hooks: WriterHooks): StreamWriter<T> {
    assert(!this.#writers.has(id), `stream ${id} already has a writer`);
    const writer = new Writer<T>(this.#window, hooks, {
      item: (item) => this.#postItem(id, item),
      end: () => {
        this.#writers.delete(id);
        this.#post(["end", id]);
      },
    });
    if (this.#exit === null) this.#writers.set(id, writer as Writer<never>);
    else queueMicrotask(() => writer.cancelled());
    return writer;
  }

  /** Creates the reading end. It must exist before the peer writes, because entries for unknown ids are dropped. */
  reader<T>(id: number): StreamReader<T> {
    assert(!this.#readers.has(id), `stream ${id} already has a reader`);
    const reader = new Reader<T>(this.#window, {
      credit: (count) => this.#post(["credit", id, count]),
      cancel: () => {
        this.#readers.delete(id);
        this.#post(["cancel", id]);
      },
    });
    if (this.#exit === null) this.#readers.set(id, reader as Reader<unknown>);
    else reader.failed(goneError(this.#endpoint.peer, this.#exit));
    return reader;
  }

  // Handles an entry from the peer. An unknown id is not an error, because the stream may have been closed here
  // while the entry was in transit.
  #arrived(entry: Entry): void {
    const id = entry[1];
    switch (entry[0]) {
      case "items":
        this.#readers.get(id)?.arrived(entry[2]);
        break;
      case "end":
        this.#readers.get(id)?.ended();
        this.#readers.delete(id);
        break;
      case "credit":
        this.#writers.get(id)?.credit(entry[2]);
        break;
      case "cancel": {
        const writer = this.#writers.get(id);
        this.#writers.delete(id);
        writer?.cancelled();
        break;
      }
      default:
        entry satisfies never;
    }
  }

  #peerGone(exit: PeerExit): void {
    this.#exit = exit;
    const writers = [...this.#writers.values()];
    const readers = [...this.#readers.values()];
    this.#writers.clear();
    this.#readers.clear();
    for (const reader of readers) reader.failed(goneError(this.#endpoint.peer, exit));
    for (const writer of writers) writer.cancelled();
  }

  #postItem(id: number, item: unknown): void {
    const items = this.#outboxItems.get(id);
    if (items !== undefined) {
      items.push(item);
      return;
    }
    const fresh = [item];
    this.#outboxItems.set(id, fresh);
    this.#post(["items", id, fresh]);
  }

  #post(entry: Entry): void {
    // Uses setImmediate instead of a microtask. One incoming message wakes many readers, and each takes several microtasks.
    // setImmediate runs after these microtasks and after the other messages of the same poll. It adds no delay, because it is
    // the event loop's next phase.
    if (this.#outbox.length === 0) setImmediate(() => this.#flush());
    this.#outbox.push(entry);
  }

  #flush(): void {
    const entries = this.#outbox;
    this.#outbox = [];
    this.#outboxItems.clear();
    this.#endpoint.send(this.#channel, entries);
  }
}
