// WebSocket transport: one JSON message per frame, of bounded length.
import type { JSONRPCMessage, Transport } from "@modelcontextprotocol/client";
import { WebSocket } from "ws";
import { ServerError } from "../../../runtime/errors.ts";
import { maxMessageBytes, tooLarge } from "./limits.ts";
import { messageIn } from "./message-in.ts";

/** WebSocket subprotocol of MCP. If a server does not support it, the connection is opened again without it. */
const SUBPROTOCOL = "mcp";
const HANDSHAKE_MS = 30_000;
const MAX_UNREAD_BYTES = 16 * 2 ** 20;

export class WebSocketTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage) => void;
  #hasEnded = false;
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;
  readonly #onEnd: (reason: string) => void;
  #socket: WebSocket | null = null;

  /** `onEnd`: called with the reason if the server ends the connection. */
  constructor(url: string, headers: Readonly<Record<string, string>>, onEnd: (reason: string) => void) {
    this.#url = url;
    this.#headers = headers;
    this.#onEnd = onEnd;
  }

  async start(): Promise<void> {
    this.#socket = await this.#open([SUBPROTOCOL]).catch(async (error: Error) => {
      if (!error.message.includes("subprotocol")) throw error;
      return await this.#open([]);
    });
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const socket = this.#socket;
    if (socket === null || this.#hasEnded) throw new ServerError("peer_gone", "its connection has ended");
    if (socket.bufferedAmount > MAX_UNREAD_BYTES) throw new ServerError("queue_full", "it does not read its messages");
    socket.send(JSON.stringify(message));
  }

  async close(): Promise<void> {
    this.#end(null);
    this.#socket?.close();
  }

  async #open(protocols: string[]): Promise<WebSocket> {
    const socket = new WebSocket(this.#url, protocols, {
      headers: this.#headers,
      maxPayload: maxMessageBytes,
      handshakeTimeout: HANDSHAKE_MS,
      perMessageDeflate: false,
    });
    await new Promise<void>((resolve, reject) => {
      socket.once("open", resolve);
      socket.once("error", reject);
    });
    socket.on("message", (data, isBinary) => this.#read(isBinary ? null : String(data)));
    socket.on("error", (error) => this.#end(error.message.includes("payload") ? tooLarge : error.message));
    socket.on("close", (code) => this.#end(`it closed the connection (code ${code})`));
    return socket;
  }

  #read(text: string | null): void {
    if (this.#hasEnded) return;
    const message = text === null ? null : messageIn(text);
    if (message !== null) {
      this.onmessage?.(message);
      return;
    }
    this.#end("it sent a frame that is not a JSON-RPC message");
    this.#socket?.close();
  }

  /** Ends the connection. `reason`: why the server ended it; null = this side closes it. */
  #end(reason: string | null): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    if (reason !== null) this.#onEnd(reason);
    this.onclose?.();
  }
}
