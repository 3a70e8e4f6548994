// Recorder: an HTTP proxy in front of a server that records when each streamed request arrived and when its first text came back.
// A request is named by its field `seed`, which troupe sends on unchanged.
import { once } from "node:events";
import { Agent, createServer, type IncomingMessage, request, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { performance } from "node:perf_hooks";
import { EventScanner } from "../serving/client/event-scanner.ts";

export interface Visit {
  /** Time at which the whole request had arrived, as of performance.now(). */
  readonly startMs: number;
  readonly firstTextMs: number;
}

export class Recorder {
  /** Requests whose first text has come, by their seed. */
  readonly visits = new Map<number, Visit>();
  readonly #target: URL;
  readonly #server: Server;
  /** Opens a connection for each request, because llama-server may close a kept one just when it is used again. */
  readonly #agent = new Agent({ keepAlive: false });

  private constructor(target: URL) {
    this.#target = target;
    this.#server = createServer((incoming, outgoing) => {
      this.#pass(incoming, outgoing).catch(() => outgoing.destroy());
    });
  }

  /** Opens a proxy to the server at `target`. */
  static async open(target: URL): Promise<Recorder> {
    const recorder = new Recorder(target);
    recorder.#server.listen(0, "127.0.0.1");
    await once(recorder.#server, "listening");
    return recorder;
  }

  get url(): URL {
    return new URL(`http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`);
  }

  close(): void {
    this.#agent.destroy();
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #pass(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const { method, url: path, headers } = incoming;
    const parts: Buffer[] = [];
    for await (const part of incoming) parts.push(part);
    const startMs = performance.now();
    const body = Buffer.concat(parts);
    const upstream = request(new URL(path ?? "/", this.#target), { method, headers, agent: this.#agent });
    // A client that disconnects cancels its request.
    outgoing.on("close", () => upstream.destroy());
    upstream.end(body);
    const [response] = (await once(upstream, "response")) as [IncomingMessage];
    outgoing.writeHead(response.statusCode ?? 502, response.headers);
    const scanner = new EventScanner([]);
    for await (const part of response as AsyncIterable<Buffer>) {
      const isFirst = scanner.textCount === 0;
      scanner.scan(part, 0, part.length, performance.now());
      outgoing.write(part);
      if (!isFirst || scanner.textCount === 0) continue;
      const { seed } = JSON.parse(body.toString()) as { seed?: number };
      if (seed !== undefined) this.visits.set(seed, { startMs, firstTextMs: scanner.firstTextMs });
    }
    outgoing.end();
  }
}
