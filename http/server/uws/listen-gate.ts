// Listen gate: manages the listening socket of uWebSockets.js. uWS retries accept in a busy loop when the process has no free
// file descriptors. Therefore, the gate closes the socket while few descriptors are free, and reopens it when connections have
// ended.
import { openFileCount } from "../../../runtime/host/open-files.ts";
import { freeAtFiles, fullAtFiles } from "../connection-limit.ts";
import { listenFailure } from "../port/listen-failure.ts";
import type { Native, NativeApp } from "./native.ts";

const CHECK_EVERY_MS = 200;
/**
 * Maximum attempts to close and reopen the listening socket on a port chosen by the system. An attempt fails if another process
 * takes the port between the close and the reopening.
 */
const TRIES_OF_FREE_PORT = 5;

export interface ListenGateOptions {
  readonly native: Native;
  readonly app: NativeApp;
  readonly host: string;
  readonly port: number;
  /** Whether other processes may listen on the port too. */
  readonly sharesPort: boolean;
  /** Called when the gate closes the listening socket. */
  readonly onFull: () => void;
}

export class ListenGate {
  readonly port: number;
  readonly #options: ListenGateOptions;
  readonly #fullAt = fullAtFiles();
  readonly #freeAt = freeAtFiles();
  readonly #timer: NodeJS.Timeout;
  /** Listening socket; null while the gate is closed and connections are rejected. */
  #socket: object | null;

  private constructor(options: ListenGateOptions, socket: object) {
    this.#options = options;
    this.#socket = socket;
    this.port = options.native.us_socket_local_port(socket);
    this.#timer = setInterval(() => this.#check(), CHECK_EVERY_MS).unref();
  }

  /** Opens the gate. Throws ServerError `config_invalid` if the address is unavailable. */
  static async open(options: ListenGateOptions): Promise<ListenGate> {
    const { host, port, native } = options;
    const listenTo = (wanted: number) => new Promise<object | false>((resolve) => listen(options, wanted, resolve));
    let socket = await listenTo(port);
    // uWS sets SO_REUSEADDR only for an explicit port. A socket opened on port 0 could therefore not be reopened while
    // connections to its port exist. So it is closed, and opened again on the port that the system chose.
    for (let tries = 0; port === 0 && socket !== false && tries < TRIES_OF_FREE_PORT; tries++) {
      const free = native.us_socket_local_port(socket);
      native.us_listen_socket_close(socket);
      const named = await listenTo(free);
      if (named !== false) return new ListenGate(options, named);
      socket = await listenTo(0);
    }
    if (socket === false) throw await listenFailure(host, port);
    return new ListenGate(options, socket);
  }

  close(): void {
    clearInterval(this.#timer);
    this.#closeSocket();
  }

  #check(): void {
    const count = openFileCount();
    if (this.#socket !== null && count > this.#fullAt) {
      this.#closeSocket();
      this.#options.onFull();
    } else if (this.#socket === null && count < this.#freeAt) {
      // If another process has taken the port, the next check retries.
      listen(this.#options, this.port, (socket) => {
        if (socket !== false) this.#socket = socket;
      });
    }
  }

  #closeSocket(): void {
    if (this.#socket !== null) this.#options.native.us_listen_socket_close(this.#socket);
    this.#socket = null;
  }
}

/** Listens on a port. Without the exclusive option, uWS would share the port with other processes. */
function listen(options: ListenGateOptions, port: number, done: (socket: object | false) => void): void {
  const { native, app, host, sharesPort } = options;
  app.listen(host, port, sharesPort ? 0 : native.LIBUS_LISTEN_EXCLUSIVE_PORT, done);
}
