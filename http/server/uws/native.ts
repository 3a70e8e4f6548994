// Loader of uWebSockets.js from one of two packages, because either package may lack a binary for this machine. `uws-compat` is
// an older build for Node 20 on systems with an old C library; troupe does not install it. The types cover only the part of the
// API that http/server/uws uses, so the build needs neither package.
import { createRequire } from "node:module";

export interface NativeResponse {
  cork(callback: () => void): NativeResponse;
  writeStatus(status: string): NativeResponse;
  writeHeader(name: string, value: string): NativeResponse;
  write(chunk: string | Uint8Array): boolean;
  end(body?: string | Uint8Array, closeConnection?: boolean): NativeResponse;
  endWithoutBody(): NativeResponse;
  close(): NativeResponse;
  pause(): void;
  resume(): void;
  onAborted(handler: () => void): NativeResponse;
  onData(handler: (chunk: ArrayBuffer, isLast: boolean) => void): NativeResponse;
  getRemoteAddressAsText(): ArrayBuffer;
  onWritable(handler: (offset: number) => boolean): NativeResponse;
  /** Completes a WebSocket handshake. Calls `open` of the behavior before it returns. Do not use the response afterwards. */
  upgrade(userData: object, key: string, protocol: string, extensions: string, context: object): void;
}

export interface NativeSocket {
  send(message: string): number;
  sendFirstFragment(message: string): number;
  sendFragment(message: string): number;
  sendLastFragment(message: string): number;
  getBufferedAmount(): number;
  cork(callback: () => void): NativeSocket;
  ping(): number;
  end(code: number, reason: string): void;
  close(): NativeSocket;
}

/** Behavior of WebSocket connections. `idleTimeout` is in seconds, `maxPayloadLength` and `maxBackpressure` are in bytes. */
export interface NativeSocketBehavior {
  readonly maxPayloadLength: number;
  readonly maxBackpressure: number;
  readonly idleTimeout: number;
  readonly upgrade: (response: NativeResponse, request: NativeRequest, context: object) => void;
  readonly open: (socket: NativeSocket) => void;
  readonly message: (socket: NativeSocket, message: ArrayBuffer) => void;
  readonly drain: (socket: NativeSocket) => void;
  readonly close: (socket: NativeSocket) => void;
}

export interface NativeRequest {
  getCaseSensitiveMethod(): string;
  getUrl(): string;
  getQuery(): string | undefined;
  forEach(callback: (name: string, value: string) => void): void;
}

export interface NativeApp {
  any(pattern: string, handler: (response: NativeResponse, request: NativeRequest) => void): NativeApp;
  ws(pattern: string, behavior: NativeSocketBehavior): NativeApp;
  listen(host: string, port: number, options: number, callback: (socket: object | false) => void): NativeApp;
  close(): NativeApp;
}

export interface Native {
  App(): NativeApp;
  us_listen_socket_close(socket: object): void;
  us_socket_local_port(socket: object): number;
  readonly LIBUS_LISTEN_EXCLUSIVE_PORT: number;
}

export type NativePackage = "uws" | "uws-compat";

/**
 * Loads a package's binary for this platform. Throws the loader's error if no binary fits. For uws-compat the binary is loaded
 * directly, because the package's entry point would silently fall back to a slow substitute.
 */
export function loadNative(name: NativePackage): Native {
  const require = createRequire(import.meta.url);
  if (name === "uws") return require("uWebSockets.js") as Native;
  return require(
    `uws-compat/binaries/uws_${process.platform}_${process.arch}_${process.versions.modules}.node`,
  ) as Native;
}
