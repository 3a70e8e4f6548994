// Redis connection: one connection for commands and one for subscriptions. While Redis cannot be reached or does not reply,
// commands fail at once, so that callers never wait for a lost connection. Both connections reconnect with backoff.
import { createClient, ErrorReply, RESP_TYPES, type ReconnectStrategyError } from "redis";
import { wallTime } from "../../clock.ts";
import { ServerError } from "../../errors.ts";
import { clientOptions, shownUrl } from "./redis-url.ts";
import type { Script } from "./scripts.ts";
import { Subscriptions } from "./subscriptions.ts";

type Client = ReturnType<typeof createClient>;

/** Value of a reply. Strings are returned as bytes. */
export type Value = Buffer | number | null | readonly Value[];

export type Argument = string | number | Uint8Array;

/** Counters since the start: commands, failed commands, total seconds that commands took, and reconnects. */
export interface StoreStatistics {
  readonly isConnected: boolean;
  readonly commands: number;
  readonly errors: number;
  readonly seconds: number;
  readonly reconnects: number;
}

/**
 * Called when the connection is lost or restored. `isReplaced` is true if the server was restarted or replaced by another
 * server, which may lack the last writes.
 */
export type ConnectionListener = (state: {
  readonly isConnected: boolean;
  readonly reason: string;
  readonly isReplaced: boolean;
}) => void;

const CONNECT_MS = 5000;
/** Time in ms after which a command without a reply fails. */
const COMMAND_MS = 3000;
/** Time in ms without received data after which a connection is closed and opened again. A ping is sent every second. */
const SILENT_MS = 6000;
const PING_MS = 1000;
const MIN_BACKOFF_MS = 50;
const MAX_BACKOFF_MS = 2000;
/** Maximum number of commands that wait for a reply. */
const MOST_COMMANDS = 16_384;

const bytesReplies = {
  typeMapping: { [RESP_TYPES.BLOB_STRING]: Buffer, [RESP_TYPES.SIMPLE_STRING]: Buffer },
} as const;

export class RedisConnection {
  readonly #client: Client;
  readonly #subscriber: Client;
  readonly #shown: string;
  readonly #scripts: readonly Script[];
  readonly #onChange: ConnectionListener;
  readonly #subscriptions: Subscriptions;
  #isStalled = false;
  /** Timer that connects again after `#leave`; null if none. */
  #returning: NodeJS.Timeout | null = null;
  /** Number of times that this server was left in a row because it was a read-only replica. */
  #departures = 0;
  #wasConnected = true;
  #reason = "";
  /** Identity of the server that was connected last; "" if unknown. */
  #server = "";
  #clockAheadMs = 0;
  #commands = 0;
  #errors = 0;
  #seconds = 0;
  #reconnects = 0;

  private constructor(client: Client, shown: string, scripts: readonly Script[], onChange: ConnectionListener) {
    this.#client = client;
    this.#subscriber = client.duplicate();
    this.#subscriptions = new Subscriptions(this.#subscriber);
    this.#shown = shown;
    this.#scripts = scripts;
    this.#onChange = onChange;
  }

  /**
   * Opens the connection. Throws config_invalid if Redis refuses the login or is older than 6.2, and storage_unavailable if it cannot be
   * reached or is not ready. `onChange` is called when the connection is lost and when it is back.
   */
  static async open(url: string, scripts: readonly Script[], onChange: ConnectionListener): Promise<RedisConnection> {
    const options = clientOptions(url);
    let isOpen = false;
    const reconnectStrategy = (retries: number, cause: Error): number | Error => (isOpen ? backoffMs(retries) : cause);
    const timing = { connectTimeout: CONNECT_MS, socketTimeout: SILENT_MS, reconnectStrategy };
    const client = createClient({
      ...options,
      socket: { ...options.socket, ...timing } as NonNullable<typeof options.socket>,
      disableOfflineQueue: true,
      commandsQueueMaxLength: MOST_COMMANDS,
      pingInterval: PING_MS,
    });
    const connection = new RedisConnection(client as unknown as Client, shownUrl(url), scripts, onChange);
    try {
      await connection.#connect();
    } catch (error) {
      connection.close();
      const [code, remedy] = isRefusal(error)
        ? (["config_invalid", "correct state_url"] as const)
        : (["storage_unavailable", "start it, or correct state_url"] as const);
      const text = `state_url: expected a Redis or Valkey server at ${shownUrl(url)}: ${reasonOf(error)}; ${remedy}`;
      throw new ServerError(code, text, { param: "state_url", cause: error });
    }
    isOpen = true;
    return connection;
  }

  get isConnected(): boolean {
    return this.#client.isReady && !this.#isStalled;
  }

  /**
   * Time of Redis minus wallTime(), in ms, when the connection was made. All replicas expire entries by the time of Redis, because
   * the clock of a machine may have been wrong when its server started.
   */
  get clockAheadMs(): number {
    return this.#clockAheadMs;
  }

  statistics(): StoreStatistics {
    const [commands, errors, seconds, reconnects] = [this.#commands, this.#errors, this.#seconds, this.#reconnects];
    return { isConnected: this.isConnected, commands, errors, seconds, reconnects };
  }

  /** Runs a script. Throws storage_unavailable. */
  async run(script: Script, prefix: string, args: readonly Argument[]): Promise<Value> {
    try {
      return await this.command("EVALSHA", script.sha, 1, prefix, ...args);
    } catch (error) {
      // NOSCRIPT: Redis does not have the script, because Redis was restarted or its scripts were flushed.
      if (!(error instanceof ServerError) || !error.message.includes("NOSCRIPT")) throw error;
      return await this.command("EVAL", script.source, 1, prefix, ...args);
    }
  }

  /** Sends a command. Commands of one turn of the event loop are pipelined. Throws storage_unavailable. */
  async command(...args: readonly Argument[]): Promise<Value> {
    this.#commands++;
    if (!this.isConnected) {
      this.#errors++;
      throw this.#unavailable(this.#reason === "" ? "it is not connected" : this.#reason);
    }
    const began = performance.now();
    let timer: NodeJS.Timeout | undefined;
    // Set by the timer, not computed from the time that has passed: timers may fire a fraction of a ms early.
    let isLate = false;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => {
        isLate = true;
        reject(new Error(`no reply within ${COMMAND_MS} ms`));
      }, COMMAND_MS);
    });
    const reply = this.#client.sendCommand<Value>(args.map(sent), bytesReplies);
    try {
      return await Promise.race([reply, late]);
    } catch (error) {
      this.#errors++;
      if (isLate) this.#stall(reply, reasonOf(error));
      else if (isReplicaError(error)) this.#leave(reasonOf(error));
      throw this.#unavailable(reasonOf(error), error);
    } finally {
      clearTimeout(timer);
      this.#seconds += (performance.now() - began) / 1000;
    }
  }

  /** Calls the listener for each message on a channel. The returned function ends the subscription. */
  subscribe(channel: string, listener: (message: string) => void): () => void {
    return this.#subscriptions.add(channel, listener);
  }

  /**
   * Calls the listener each time the subscriptions were restored after a lost connection, because messages may have been
   * missed.
   */
  onResubscribed(listener: () => void): () => void {
    return this.#subscriptions.onBack(listener);
  }

  async #connect(): Promise<void> {
    for (const client of [this.#client, this.#subscriber]) {
      client.on("error", (error) => this.#lost(reasonOf(error)));
      await client.connect();
    }
    await this.#checkVersion();
    await this.#loadScripts();
    this.#client.on("ready", () => void this.#back());
    this.#subscriber.on("ready", () => void this.#subscriptions.back());
  }

  async #checkVersion(): Promise<void> {
    const info = await this.#info();
    const [, major = "0", minor = "0"] = /redis_version:(\d+)\.(\d+)/.exec(info) ?? [];
    if (Number(major) * 100 + Number(minor) < 602)
      throw new ServerError("unsupported", `expected Redis 6.2 or newer, got ${major}.${minor}`);
    this.#server = serverIn(info);
    this.#clockAheadMs = clockAheadIn(info);
  }

  async #info(): Promise<string> {
    return String(await this.command("INFO"));
  }

  async #loadScripts(): Promise<void> {
    await Promise.all(this.#scripts.map(({ source }) => this.command("SCRIPT", "LOAD", source)));
  }

  #stall(reply: Promise<Value>, reason: string): void {
    this.#isStalled = true;
    this.#lost(reason);
    // Redis counts as unreachable until the late reply to this command arrives, which may be an error reply, or until the client
    // has reconnected. Other errors mean that the connection was lost.
    reply.then(
      () => this.#back(),
      (error) => (error instanceof ErrorReply ? this.#back() : undefined),
    );
  }

  /**
   * Closes the connections and opens them again after a delay: this server has become a replica, and does not close the
   * connections itself. The address may lead to the new primary by now.
   */
  #leave(reason: string): void {
    if (!this.#client.isReady) return;
    // A subscriber that is not ready is connecting already.
    const clients = [this.#client, this.#subscriber].filter(({ isReady }) => isReady);
    for (const client of clients) client.destroy();
    this.#lost(reason);
    this.#returning = setTimeout(
      () => {
        for (const client of clients) client.connect().catch(() => {});
      },
      backoffMs(this.#departures++),
    );
  }

  #lost(reason: string): void {
    this.#reason = reason;
    if (this.isConnected || !this.#wasConnected) return;
    this.#wasConnected = false;
    this.#onChange({ isConnected: false, reason: `${this.#shown}: ${reason}`, isReplaced: false });
  }

  async #back(): Promise<void> {
    this.#isStalled = false;
    this.#reason = "";
    await this.#loadScripts().catch(() => {});
    const info = await this.#info().catch(() => "");
    if (isReadOnlyReplica(info)) return this.#leave("it is a read-only replica");
    const server = serverIn(info);
    if (info !== "") {
      this.#clockAheadMs = clockAheadIn(info);
      this.#departures = 0;
    }
    if (this.#wasConnected || !this.isConnected) return;
    const isReplaced = server === "" || server !== this.#server;
    this.#server = server;
    this.#wasConnected = true;
    this.#reconnects++;
    this.#onChange({ isConnected: true, reason: "", isReplaced });
  }

  #unavailable(reason: string, cause?: unknown): ServerError {
    const text = `the shared state at ${this.#shown} cannot be read or written now: ${reason}; try again soon`;
    return new ServerError("storage_unavailable", text, { cause });
  }

  close(): void {
    if (this.#returning !== null) clearTimeout(this.#returning);
    for (const client of [this.#client, this.#subscriber]) if (client.isOpen) client.destroy();
  }
}

/**
 * Returns the identity of a server, from the reply to INFO; "" if unknown. The identity changes when the server is restarted,
 * or is promoted to primary.
 */
function serverIn(info: string): string {
  const ids = ["run_id", "master_replid"].map((field) => new RegExp(`^${field}:(\\S+)`, "m").exec(info)?.[1] ?? "");
  return ids.join(" ").trim();
}

/** Returns whether a reply to INFO is that of a replica that refuses writes. */
function isReadOnlyReplica(info: string): boolean {
  return /^slave_read_only:1/m.test(info);
}

/** Returns whether a replica has refused a command. Redis 6.2 writes the error of a command in a script behind other text. */
function isReplicaError(error: unknown): boolean {
  return error instanceof ErrorReply && /(^|-)(READONLY|MASTERDOWN) /.test(error.message);
}

/** Returns whether a failure to connect lasts until a setting or the server is changed: a refused login, or an older server. */
function isRefusal(error: unknown): boolean {
  if (error instanceof ServerError && error.code === "unsupported") return true;
  const reply = error instanceof ServerError ? error.cause : ((error as ReconnectStrategyError).originalError ?? error);
  return reply instanceof ErrorReply && !/^(LOADING|BUSY|MASTERDOWN) |max number of clients/.test(reply.message);
}

/** Returns the time in ms to wait before the next attempt to connect. `retries`: number of attempts so far. */
function backoffMs(retries: number): number {
  return Math.min(MIN_BACKOFF_MS * 2 ** Math.min(retries, 10), MAX_BACKOFF_MS) * (0.75 + Math.random() / 2);
}

/** Returns the time of Redis in a reply to INFO minus wallTime(), in ms. */
function clockAheadIn(info: string): number {
  const [, microseconds] = /^server_time_usec:(\d+)/m.exec(info) ?? [];
  return microseconds === undefined ? 0 : Number(microseconds) / 1000 - wallTime();
}

function sent(argument: Argument): string | Buffer {
  if (typeof argument === "number") return String(argument);
  if (typeof argument === "string") return argument;
  return Buffer.from(argument.buffer, argument.byteOffset, argument.byteLength);
}

function reasonOf(error: unknown): string {
  const { code, message } = error as NodeJS.ErrnoException;
  return message === undefined || message === "" ? String(code ?? error) : message;
}
