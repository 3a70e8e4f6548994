// Driver channel: sends cells (the code of one Python call) to the driver of an interpreter and receives its replies, as JSON
// lines. The code of a cell can write to the channel too, so lines that are not the reply to the cell are ignored, and the number
// of bytes is limited.
import type { ConfinedProcess } from "../../../runtime/sandbox/sandbox.ts";

/** Maximum number of bytes received while a cell runs. The images of a cell need fewer. */
const MAX_BYTES = 48 * 2 ** 20;
/** Maximum number of brackets and commas outside strings in a reply; a reply of the driver has fewer. Each could become an object. */
const MAX_PARTS = 1024;
const NEWLINE = 0x0a;
const [QUOTE, BACKSLASH, COMMA, BRACKET, BRACE] = [0x22, 0x5c, 0x2c, 0x5b, 0x7b];

export interface Reply {
  readonly reply: object;
}

export class DriverChannel {
  readonly #channel: ConfinedProcess["channel"];
  readonly #onFlood: () => void;
  #id = 0;
  #onReply: (reply: Reply) => void = () => {};
  /** Received chunks of the current, incomplete line. */
  #line: Buffer[] = [];
  #bytes = 0;
  isFlooded = false;

  /** `onFlood`: called when the process has sent more than MAX_BYTES. It must end the process. */
  constructor(channel: ConfinedProcess["channel"], onFlood: () => void) {
    this.#channel = channel;
    this.#onFlood = onFlood;
    channel?.fromCommand.on("error", () => {});
    channel?.fromCommand.on("data", (chunk: Buffer) => this.#receive(chunk)).pause();
  }

  /** Sends a cell. Resolves with the driver's reply; never settles if no reply arrives. */
  ask(code: string): Promise<Reply> {
    const id = ++this.#id;
    this.#bytes = 0;
    const replied = new Promise<Reply>((resolve) => {
      this.#onReply = resolve;
    });
    this.#channel?.fromCommand.resume();
    this.#channel?.toCommand.write(`${JSON.stringify({ id, code })}\n`);
    return replied;
  }

  close(): void {
    this.#channel?.fromCommand.destroy();
    this.#channel?.toCommand.destroy();
    this.#line = [];
  }

  #receive(chunk: Buffer): void {
    this.#bytes += chunk.length;
    if (this.#bytes > MAX_BYTES) {
      this.isFlooded = true;
      this.close();
      this.#onFlood();
      return;
    }
    let rest = chunk;
    for (let end = rest.indexOf(NEWLINE); end >= 0; end = rest.indexOf(NEWLINE)) {
      this.#take(Buffer.concat([...this.#line, rest.subarray(0, end)]));
      this.#line = [];
      rest = rest.subarray(end + 1);
    }
    if (rest.length > 0) this.#line.push(rest);
  }

  #take(line: Buffer): void {
    if (hasManyParts(line)) return;
    let reply: unknown;
    try {
      reply = JSON.parse(line.toString("utf8"));
    } catch {
      return;
    }
    if (typeof reply !== "object" || reply === null || (reply as { id?: unknown }).id !== this.#id) return;
    // The channel is not read between cells, so a child process that keeps writing is blocked and does not keep this thread busy.
    this.#channel?.fromCommand.pause();
    this.#onReply({ reply });
  }
}

/** Whether a line of JSON has more than MAX_PARTS brackets and commas outside strings. Parsing it could take much memory. */
function hasManyParts(line: Buffer): boolean {
  let parts = 0;
  for (let at = 0; at < line.length; at++) {
    const byte = line[at];
    if (byte === COMMA || byte === BRACKET || byte === BRACE) {
      if (++parts > MAX_PARTS) return true;
    } else if (byte === QUOTE) {
      at = line.indexOf(QUOTE, at + 1);
      while (at > 0 && isEscaped(line, at)) at = line.indexOf(QUOTE, at + 1);
      if (at < 0) return false;
    }
  }
  return false;
}

/** Whether the byte at `at` follows an odd number of backslashes. */
function isEscaped(line: Buffer, at: number): boolean {
  let backslashes = 0;
  while (line[at - 1 - backslashes] === BACKSLASH) backslashes++;
  return backslashes % 2 === 1;
}
