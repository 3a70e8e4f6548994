// Sessionless requests: requests of the protocol's 2026 revision, which has no sessions, and requests of older clients that
// have not initialized a session.
import { createMcpHandler, isLegacyRequest } from "@modelcontextprotocol/server";
import type { ExchangeFinder, ServerFactory } from "./protocol.ts";
import { PostTransport } from "./transport.ts";

export class Sessionless {
  readonly #keepAliveMs: number;
  readonly #createServer: () => ReturnType<ServerFactory>;
  readonly #modern: ReturnType<typeof createMcpHandler>;

  constructor(keepAliveMs: number, createServer: ServerFactory, exchangeOf: ExchangeFinder) {
    this.#keepAliveMs = keepAliveMs;
    this.#createServer = () => createServer(exchangeOf);
    this.#modern = createMcpHandler(this.#createServer, {
      legacy: "reject",
      keepAliveMs,
      // Clients cannot subscribe, because nothing that the server offers changes.
      maxSubscriptions: 0,
    });
  }

  async fetch(request: Request, parsedBody: unknown): Promise<Response> {
    if (!(await isLegacyRequest(request, parsedBody))) return this.#modern.fetch(request, { parsedBody });
    const transport = new PostTransport({ keepAliveMs: this.#keepAliveMs });
    await this.#createServer().connect(transport);
    return transport.answer(request, parsedBody);
  }

  close(): Promise<void> {
    return this.#modern.close();
  }
}
