// Sessions of the protocol's 2025 revisions. `initialize` begins a session; DELETE or a long idle time ends it. The number of
// sessions is limited. At the limit, the least recently used session of the client with the most sessions is closed.
import { randomUUID } from "node:crypto";
import type { Server } from "@modelcontextprotocol/server";
import { ServerError } from "../../runtime/errors.ts";
import type { ExchangeFinder, ServerFactory } from "./protocol.ts";
import { PostTransport } from "./transport.ts";

export interface SessionOptions {
  readonly maxSessions: number;
  /** Time without a request after which a session is closed. */
  readonly sessionIdleMs: number;
  readonly keepAliveMs: number;
  readonly createServer: ServerFactory;
  readonly exchangeOf: ExchangeFinder;
}

export class Session {
  readonly id = randomUUID();
  readonly client: string;
  readonly #transport: PostTransport;
  readonly #server: Server;
  readonly #idleTimer: NodeJS.Timeout;
  /** Number of requests whose response is not complete, including the open stream of a listening client. */
  #heldCount = 0;

  constructor(
    client: string,
    { keepAliveMs, sessionIdleMs, createServer, exchangeOf }: SessionOptions,
    onClosed: () => void,
  ) {
    this.client = client;
    this.#transport = new PostTransport({ sessionIdGenerator: () => this.id, keepAliveMs });
    this.#server = createServer(exchangeOf);
    this.#server.onclose = () => {
      clearTimeout(this.#idleTimer);
      onClosed();
    };
    this.#idleTimer = setTimeout(() => this.#rested(), sessionIdleMs).unref();
  }

  get isHeld(): boolean {
    return this.#heldCount > 0;
  }

  connect(): Promise<void> {
    return this.#server.connect(this.#transport);
  }

  /** Returns the response to a request. Call `hold` first, and `release` after the response is sent. Throws invalid_value. */
  fetch(request: Request, parsedBody: unknown): Promise<Response> {
    return this.#transport.answer(request, parsedBody);
  }

  hold(): void {
    this.#heldCount++;
  }

  release(): void {
    this.#heldCount--;
    this.#idleTimer.refresh();
    // If the initialize request was rejected, the transport has no session id. The client then cannot close the session.
    if (this.#transport.sessionId === undefined) void this.close();
  }

  stopListening(): void {
    this.#transport.closeStandaloneSSEStream();
  }

  close(): Promise<void> {
    return this.#server.close();
  }

  #rested(): void {
    if (this.isHeld) this.#idleTimer.refresh();
    else void this.close();
  }
}

export class Sessions {
  readonly #options: SessionOptions;
  /** Open sessions by id, ordered from the least recently used to the most recently used. */
  readonly #open = new Map<string, Session>();

  constructor(options: SessionOptions) {
    this.#options = options;
  }

  /** Returns a session. Throws `not_found` for an unknown id, which tells the client to begin a new session. */
  find(id: string): Session {
    const session = this.#open.get(id);
    if (session === undefined) throw new ServerError("not_found", "Session not found; begin a new one by initialize");
    this.#open.delete(id);
    this.#open.set(id, session);
    return session;
  }

  /**
   * Opens a session, which `client` must initialize. Throws `queue_full` if the limit is reached and all sessions are in use.
   */
  async open(client: string): Promise<Session> {
    if (this.#open.size >= this.#options.maxSessions) this.#makeRoom();
    const session = new Session(client, this.#options, () => this.#open.delete(session.id));
    this.#open.set(session.id, session);
    await session.connect();
    return session;
  }

  /** Closes the streams that clients opened only to listen, so that idle clients keep no connection open. */
  stopListening(): void {
    for (const session of this.#open.values()) session.stopListening();
  }

  async close(): Promise<void> {
    await Promise.all([...this.#open.values()].map((session) => session.close()));
  }

  #makeRoom(): void {
    const counts = new Map<string, number>();
    for (const { client } of this.#open.values()) counts.set(client, (counts.get(client) ?? 0) + 1);
    let most = 0;
    let ending: Session | null = null;
    for (const session of this.#open.values()) {
      const count = counts.get(session.client) ?? 0;
      if (session.isHeld || count <= most) continue;
      most = count;
      ending = session;
    }
    if (ending !== null) {
      this.#open.delete(ending.id);
      void ending.close();
      return;
    }
    const message = `there are ${this.#options.maxSessions} sessions in use (mcp_max_sessions); try again when one has ended`;
    throw new ServerError("queue_full", message);
  }
}
