// Sessions of the protocol's 2025 revisions. `initialize` begins a session; DELETE or a long idle time ends it. The number of
// sessions is limited. At the limit, the least recently used session of the client with the most sessions is closed.
import { randomUUID } from "node:crypto";
import type { Server } from "@modelcontextprotocol/server";
import type { McpSessions, SharedMcpSession } from "../../actors/api/state/mcp-sessions.ts";
import type { Replicas } from "../../actors/api/state/replicas.ts";
import { ServerError } from "../../runtime/errors.ts";
import { ownRequest } from "./bridge.ts";
import type { ExchangeFinder, ServerFactory } from "./protocol.ts";
import { PostTransport } from "./transport.ts";

export interface SessionOptions {
  readonly maxSessions: number;
  /** Milliseconds without a request after which a session is closed. */
  readonly sessionIdleMs: number;
  readonly keepAliveMs: number;
  readonly createServer: ServerFactory;
  readonly exchangeOf: ExchangeFinder;
  /** Sessions shared by all replicas; null: the sessions belong to this server only. */
  readonly shared: SharedSessions | null;
}

/**
 * Interval, as a part of the idle time, at which sessions with incomplete responses are marked as used in the shared state. Their
 * clients may send no other request meanwhile. At most LOW_LIFETIME - 1 (actors/state/shared/mcp-session-store.ts).
 */
const KEEP_PART = 0.25;

/** Storage and messaging with which replicas share sessions. */
export interface SharedSessions {
  readonly store: McpSessions;
  readonly replicas: Pick<Replicas, "ask" | "answer">;
}

export class Session {
  readonly id: string;
  readonly client: string;
  readonly #transport: PostTransport;
  readonly #server: Server;
  readonly #idleTimer: NodeJS.Timeout;
  /** Number of requests with incomplete responses, including the open stream of a client that listens for notifications. */
  #heldCount = 0;

  constructor(
    id: string,
    client: string,
    { keepAliveMs, sessionIdleMs, createServer, exchangeOf }: SessionOptions,
    onClosed: () => void,
  ) {
    this.id = id;
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

  /** Sessions that began on other replicas and are currently being opened on this replica, by id. */
  readonly #adopting = new Map<string, Promise<Session>>();
  readonly #keeper: NodeJS.Timeout | undefined;

  constructor(options: SessionOptions) {
    this.#options = options;
    options.shared?.replicas.answer("mcpNotification", async ({ session, message }) => {
      await this.#open.get(session)?.fetch(ownRequest(session), JSON.parse(message));
      return true;
    });
    const { shared, sessionIdleMs } = options;
    if (shared !== null) this.#keeper = setInterval(() => this.#keepHeld(shared), sessionIdleMs * KEEP_PART).unref();
  }

  /**
   * Returns a session by id. Throws `not_found` for an unknown id, which makes the client begin a new session. Throws
   * storage_unavailable.
   */
  async find(id: string): Promise<Session> {
    const { shared, sessionIdleMs } = this.#options;
    const found =
      shared === null
        ? "unknown"
        : await shared.store.find({ id, idleMs: sessionIdleMs }).catch((error) => {
            // While the shared state is unavailable, sessions that are open on this replica remain usable.
            if (!this.#open.has(id)) throw error;
            return "unknown" as const;
          });
    // The lookup follows the await, because the session may have been closed during the await.
    const session = this.#open.get(id);
    if (found === null) {
      void session?.close();
      throw unknownSession();
    }
    if (session === undefined && found !== "unknown") return await this.#adopt(id, found);
    if (session === undefined) throw unknownSession();
    this.#open.delete(id);
    this.#open.set(id, session);
    return session;
  }

  /**
   * Opens a session, which `client` must initialize. Throws `queue_full` if the limit is reached and all sessions are in use.
   */
  async open(client: string): Promise<Session> {
    if (this.#open.size >= this.#options.maxSessions) this.#makeRoom();
    return await this.#create(randomUUID(), client);
  }

  /** Stores a new session in the shared state, so that other replicas know it. Throws storage_unavailable. */
  async share({ id, client }: Session, initialize: unknown): Promise<void> {
    const { shared, sessionIdleMs: idleMs } = this.#options;
    await shared?.store.put({ id, client, initialize: JSON.stringify(initialize), idleMs });
  }

  /** Removes a session that has ended on this replica from all replicas. Throws storage_unavailable. */
  async forget(id: string): Promise<void> {
    await this.#options.shared?.store.delete(id);
  }

  /** Forwards a notification to the other replicas, because the request that it concerns may run there. Never rejects. */
  async passOn(id: string, message: unknown): Promise<void> {
    const question = { session: id, message: JSON.stringify(message) };
    await this.#options.shared?.replicas.ask(null, "mcpNotification", question, false).catch(() => {});
  }

  /** Opens a session here that its client began on another replica. */
  async #adopt(id: string, found: SharedMcpSession): Promise<Session> {
    const earlier = this.#adopting.get(id);
    if (earlier !== undefined) return await earlier;
    const adopting = this.#begin(id, found).finally(() => this.#adopting.delete(id));
    this.#adopting.set(id, adopting);
    return await adopting;
  }

  async #begin(id: string, { client, initialize }: SharedMcpSession): Promise<Session> {
    if (this.#open.size >= this.#options.maxSessions) this.#makeRoom();
    const session = await this.#create(id, client);
    session.hold();
    try {
      const response = await session.fetch(ownRequest(null), JSON.parse(initialize));
      await response.body?.cancel();
    } finally {
      session.release();
    }
    return session;
  }

  async #create(id: string, client: string): Promise<Session> {
    const session = new Session(id, client, this.#options, () => {
      if (this.#open.get(id) === session) this.#open.delete(id);
    });
    this.#open.set(id, session);
    await session.connect();
    return session;
  }

  /** Closes the streams that clients opened only to listen for notifications. */
  stopListening(): void {
    for (const session of this.#open.values()) session.stopListening();
  }

  async close(): Promise<void> {
    clearInterval(this.#keeper);
    await Promise.all([...this.#open.values()].map((session) => session.close()));
  }

  #keepHeld({ store }: SharedSessions): void {
    const idleMs = this.#options.sessionIdleMs;
    // A failed attempt is repeated at the next interval.
    for (const { id, isHeld } of this.#open.values()) if (isHeld) void store.find({ id, idleMs }).catch(() => {});
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

function unknownSession(): ServerError {
  return new ServerError("not_found", "Session not found; begin a new one by initialize");
}
