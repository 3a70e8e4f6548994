// Socket sessions: the open WebSocket connections of one server. Both HTTP front ends use this class to open sessions, and to
// close them when the server stops.
import { ServerError } from "../../../runtime/errors.ts";
import { bringsBody } from "../body.ts";
import type { BodyIntake } from "../body-intake.ts";
import { clientOf } from "../client.ts";
import type { EdgeOptions, HttpRequest } from "../edge.ts";
import type { InFlight } from "../in-flight.ts";
import type { SocketConnection } from "./connection.ts";
import type { SocketLimits } from "./limits.ts";
import { type SessionOptions, SocketSession } from "./session.ts";

const defaultLimits: SocketLimits = { maxOpen: 256, idleMs: 900_000, lifetimeMs: 3_600_000 };
/** Maximum time in ms for which clients may delay the close of their connections when the server stops. */
const CLOSE_MS = 1000;

/** Random key in a header of a WebSocket handshake: 16 bytes in base64. */
const handshakeKey = /^[+/0-9A-Za-z]{22}==$/;
const VERSION = "13";

/** Returns whether the headers of a GET request are a WebSocket handshake. A request with a body is never a handshake. */
export function isHandshake(headers: ReadonlyMap<string, string>): boolean {
  if (bringsBody(headers)) return false;
  const protocol = headers.get("upgrade")?.toLowerCase();
  const key = headers.get("sec-websocket-key") ?? "";
  return protocol === "websocket" && handshakeKey.test(key) && headers.get("sec-websocket-version") === VERSION;
}

export class SocketSessions {
  readonly #options: SessionOptions;
  /** Open sessions with their clients. */
  readonly #open = new Map<SocketSession, string>();
  #onEmpty: () => void = () => {};

  constructor(intake: BodyIntake, inFlight: InFlight, { sockets = defaultLimits }: EdgeOptions) {
    this.#options = { intake, inFlight, limits: sockets, onClosed: (session) => this.#closed(session) };
  }

  /** Returns an error if the client of a handshake may not open a further connection; otherwise null. */
  refusal(handshake: HttpRequest): ServerError | null {
    const { maxOpen } = this.#options.limits;
    const mostOfClient = Math.ceil(maxOpen / 2);
    const client = clientOf(handshake);
    const isOfClient = (owner: string): boolean => owner === client;
    if (this.#open.size >= maxOpen) return full(`${maxOpen} WebSocket connections are open`);
    if ([...this.#open.values()].filter(isOfClient).length < mostOfClient) return null;
    return full(`${mostOfClient} WebSocket connections of this client are open, its share of ${maxOpen}`);
  }

  /** Opens a session for a connection. `handshake`: the HTTP request that opened the connection. */
  open(connection: SocketConnection, handshake: HttpRequest): SocketSession {
    const session = new SocketSession(connection, handshake, this.#options);
    this.#open.set(session, clientOf(handshake));
    return session;
  }

  /** Closes connections without a request in progress. Other connections close when their request has ended. */
  drain(): void {
    for (const session of [...this.#open.keys()]) session.drain();
  }

  /** Resolves when all connections have closed. After CLOSE_MS, closes the remaining ones forcibly. Call `drain` first. */
  async ended(): Promise<void> {
    if (this.#open.size === 0) return;
    const cut = setTimeout(() => this.#destroyAll(), CLOSE_MS);
    await new Promise<void>((resolve) => {
      this.#onEmpty = resolve;
    });
    clearTimeout(cut);
  }

  #closed(session: SocketSession): void {
    this.#open.delete(session);
    if (this.#open.size === 0) this.#onEmpty();
  }

  #destroyAll(): void {
    for (const session of [...this.#open.keys()]) session.destroy();
  }
}

function full(what: string): ServerError {
  return new ServerError("queue_full", `${what} (max_websockets); close one, or send the request over HTTP`);
}
