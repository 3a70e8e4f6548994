// Endpoint over a Unix domain socket. A frame is a little-endian u32 length, followed by that number of bytes of msgpack:
// [channel, payload]. A frame of length 0 is a goodbye. Invalid bytes close the connection.
import type { Socket } from "node:net";
import { Packr, RESERVE_START_SPACE } from "msgpackr";
import { ServerError } from "../errors.ts";
import { BaseEndpoint, type EndpointOptions, orderlyLoss, silentLoss } from "./base-endpoint.ts";

const headerBytes = 4;
const maxFrameBytes = 64 * 1024 * 1024;
/**
 * Limits on the number of unsent bytes. Above highWaterBytes, send() returns false. Above hardLimitBytes, the connection is
 * closed.
 */
const highWaterBytes = 1024 * 1024;
const hardLimitBytes = 4 * maxFrameBytes;
/**
 * Maximum size of the packer's buffer. A packer never shrinks its buffer, so a packer whose buffer has grown above this size is
 * replaced.
 */
const keptBufferBytes = 1024 * 1024;
/** Maximum time in ms that close() waits for a peer that does not read. */
const closeDeadlineMs = 1000;

// Objects are packed as plain maps. Records would send their structure with every message, and the receiver
// would compile a reader for it.
const newPacker = () => new Packr({ useRecords: false, moreTypes: true, copyBuffers: true });

export class SocketEndpoint extends BaseEndpoint {
  readonly #socket: Socket;
  readonly #unpacker = newPacker();
  #packer = newPacker();
  /** Chunks of an incomplete frame, the sum of their bytes, and the number of bytes at which the frame is complete. */
  #chunks: Uint8Array[] = [];
  #pendingBytes = 0;
  #neededBytes = headerBytes;

  constructor(socket: Socket, options: EndpointOptions) {
    super(options);
    this.#socket = socket;
    socket.on("data", (chunk: Buffer) => this.#arrived(chunk));
    socket.on("error", () => {}); // The error is ignored, because "close" follows and is handled.
    socket.on("close", () => this.lose(silentLoss()));
  }

  override send(channel: string, payload: unknown): boolean {
    if (this.isLost || this.#socket.writableEnded) return false;
    const frame = this.#packer.pack([channel, payload], RESERVE_START_SPACE + headerBytes);
    if (frame.length > keptBufferBytes) this.#packer = newPacker();
    const bodyBytes = frame.length - headerBytes;
    if (bodyBytes > maxFrameBytes) {
      throw new ServerError(
        "body_too_large",
        `a message of ${bodyBytes} bytes on channel "${channel}" to "${this.peer}"; the limit is ${maxFrameBytes}`,
      );
    }
    if (this.#socket.writableLength + frame.length > hardLimitBytes) {
      this.fail(`"${this.peer}" has left ${this.#socket.writableLength} bytes unread`);
      return false;
    }
    frame.writeUInt32LE(bodyBytes, 0);
    this.#socket.write(frame);
    return this.#socket.writableLength < highWaterBytes;
  }

  override close(): void {
    if (this.isLost || this.#socket.writableEnded) return;
    // Report the loss only when all bytes have left this process, or at the deadline, because code that awaits
    // `exit` may then end the process.
    const lose = () => this.lose(orderlyLoss("closed here"));
    this.#socket.end(Buffer.alloc(headerBytes), lose);
    setTimeout(lose, closeDeadlineMs).unref();
  }

  protected override abandon(): void {
    this.#socket.destroy();
  }

  #arrived(chunk: Buffer): void {
    // A plain Uint8Array, because otherwise byte arrays inside messages would become Buffers.
    this.#chunks.push(new Uint8Array(chunk.buffer, chunk.byteOffset, chunk.byteLength));
    this.#pendingBytes += chunk.length;
    // Join the chunks only when the frame is complete. Joining at each chunk would copy a large frame many times.
    if (this.#pendingBytes < this.#neededBytes) return;
    const bytes = this.#chunks.length === 1 ? (this.#chunks[0] as Uint8Array) : Buffer.concat(this.#chunks);
    const consumedBytes = this.#readFrames(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
    const rest = bytes.subarray(consumedBytes);
    this.#chunks = rest.length === 0 ? [] : [rest];
    this.#pendingBytes = rest.length;
  }

  /**
   * Delivers all complete frames, sets the number of bytes needed for the next frame, and returns the number of bytes consumed.
   */
  #readFrames(bytes: Uint8Array): number {
    const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    let at = 0;
    this.#neededBytes = headerBytes;
    while (bytes.length - at >= headerBytes && !this.isLost) {
      const bodyBytes = view.getUint32(at, true);
      if (bodyBytes > maxFrameBytes) {
        this.fail(`a frame that claims ${bodyBytes} bytes; the limit is ${maxFrameBytes}`);
        break;
      }
      const end = at + headerBytes + bodyBytes;
      if (end > bytes.length) {
        this.#neededBytes = end - at;
        break;
      }
      if (bodyBytes === 0) this.lose(orderlyLoss("closed by the peer"));
      else this.#readFrame(bytes.subarray(at + headerBytes, end));
      at = end;
    }
    return at;
  }

  #readFrame(body: Uint8Array): void {
    let message: unknown;
    try {
      message = this.#unpacker.unpack(body);
    } catch (error) {
      this.fail(`a frame that is not msgpack: ${error instanceof Error ? error.message : error}`);
      return;
    }
    if (Array.isArray(message) && message.length === 2 && typeof message[0] === "string") {
      this.deliver(message[0], message[1]);
    } else {
      this.fail("a frame that is not [channel, payload]");
    }
  }
}
