// Request log (setting `log`): writes each inference request and its complete response as one JSON line to a file. Headers are
// not logged; secrets in bodies are redacted. Keeps bounded copies of the bodies, because the originals are released before the
// line is written. The result of a background response is logged when a client retrieves it.
import { ServerError } from "../../runtime/errors.ts";
import { LineFile } from "../../runtime/log/line-file.ts";
import { withoutSecrets } from "../../runtime/log/secrets.ts";
import type { Exchange, ExchangeObserver } from "../exchange.ts";
import { namedModel } from "../json.ts";
import type { Log } from "./log.ts";

/** Maximum bytes logged of one body. Bytes beyond this limit are only counted. */
export const maxLoggedBytes = 4 * 2 ** 20;
/** Maximum bytes of the body copies of all requests in progress, for request and response bodies together. */
const maxHeldBytes = 256 * 2 ** 20;
const maxWaitingBytes = 64 * 2 ** 20;

const decoder = new TextDecoder();

export class RequestLog implements ExchangeObserver {
  readonly #file: LineFile;
  readonly #copies = new Map<Exchange, ExchangeCopy>();
  #heldBytes = 0;

  private constructor(file: LineFile) {
    this.#file = file;
  }

  /** Opens the log. Throws config_invalid if the file cannot be opened. */
  static async open(path: string, log: Log): Promise<RequestLog> {
    return new RequestLog(await openLogFile(path, log));
  }

  began(exchange: Exchange): void {
    const request = this.#requestCopy(exchange.request.body);
    const copy: ExchangeCopy = { request, pieces: [], decoder: new TextDecoder(), bytes: 0, cutBytes: 0 };
    this.#heldBytes += request.byteLength;
    this.#copies.set(exchange, copy);
    exchange.tap = (body) => this.#keep(copy, body);
  }

  ended(exchange: Exchange): void {
    const copy = this.#copies.get(exchange);
    if (copy === undefined) return;
    this.#copies.delete(exchange);
    this.#heldBytes -= copy.request.byteLength + copy.bytes;
    this.#file.append(entry(exchange, copy));
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  /** Copies the bytes to log. A view would keep the complete body in memory even if only a part is logged. */
  #requestCopy(body: Uint8Array): Uint8Array {
    return Uint8Array.from(body.subarray(0, Math.min(maxLoggedBytes, Math.max(maxHeldBytes - this.#heldBytes, 0))));
  }

  /** Keeps a piece of a response body if the complete piece fits within the limits. Otherwise, only counts its bytes. */
  #keep(copy: ExchangeCopy, body: string | Uint8Array): void {
    const bytes = Buffer.byteLength(body);
    const fits = copy.bytes + bytes <= maxLoggedBytes && this.#heldBytes + bytes <= maxHeldBytes;
    if (!fits || copy.cutBytes > 0) {
      copy.cutBytes += bytes;
      return;
    }
    copy.pieces.push(typeof body === "string" ? body : copy.decoder.decode(body, { stream: true }));
    copy.bytes += bytes;
    this.#heldBytes += bytes;
  }
}

/** Opens the file of the setting `log`. Throws config_invalid if the file cannot be opened. */
export async function openLogFile(path: string, log: Log): Promise<LineFile> {
  const onLost = (lost: number, reason: string) => {
    log.warn({ lost, reason, file: path }, "request log entries could not be written and are lost");
  };
  try {
    return await LineFile.open(path, { maxWaitingBytes, onLost });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const message = `log expects a writable file, or a new one in an existing folder; got ${reason}`;
    throw new ServerError("config_invalid", message, { param: "log", cause: error });
  }
}

interface ExchangeCopy {
  /** Request body; only its beginning if the body is too long. */
  readonly request: Uint8Array;
  /** Pieces of the response body as text. */
  readonly pieces: string[];
  /** Streaming decoder, because a chunk of bytes may end in the middle of a character. */
  readonly decoder: InstanceType<typeof TextDecoder>;
  bytes: number;
  cutBytes: number;
}

function entry(exchange: Exchange, { request: kept, pieces, cutBytes }: ExchangeCopy): string {
  const { request, model, status, id: requestId } = exchange;
  const requestCut = request.bodyBytes - kept.byteLength;
  const head = {
    time: new Date(exchange.receivedAt).toISOString(),
    requestId,
    method: request.method,
    path: request.path,
    status,
    durationMs: Math.round(exchange.elapsedMs),
    ...(model !== "" && { model }),
    ...(requestCut > 0 && { requestCutBytes: requestCut }),
    ...(cutBytes > 0 && { responseCutBytes: cutBytes }),
  };
  const answer = withoutSecrets(pieces.join(""));
  const isCut = cutBytes > 0 || !exchange.isWhole;
  const response =
    exchange.isStream || exchange.isLineStream ? streamed(exchange, answer) : isCut ? cutText(answer) : asJson(answer);
  return `${JSON.stringify(head).slice(0, -1)},"request":${requestBody(exchange, kept)},"response":${response}}`;
}

/**
 * Returns the body as JSON text: unchanged if it is complete JSON, else as a JSON string; "null" if there is no body. Line
 * breaks are removed, which is safe because JSON has them only between tokens.
 */
function requestBody({ request }: Exchange, kept: Uint8Array): string {
  if (request.bodyBytes === 0) return "null";
  const text = withoutSecrets(decoder.decode(kept));
  const isJson = namedModel(request) !== null && kept.byteLength === request.bodyBytes;
  return isJson ? text.replace(/[\r\n]+/g, " ") : JSON.stringify(text);
}

/** Returns the values in a streamed response as a JSON array, in order. */
function streamed({ isStream }: Exchange, answer: string): string {
  return isStream ? payloads(answer) : `[${answer.split("\n").slice(0, -1).map(asJson).join(",")}]`;
}

/** Returns the data of each complete event of a stream as a JSON array, in order. */
function payloads(stream: string): string {
  const whole = stream.slice(0, stream.lastIndexOf("\n\n") + 1);
  const data = whole.split("\n").flatMap((line) => (line.startsWith("data: ") ? [asJson(line.slice(6))] : []));
  return `[${data.join(",")}]`;
}

/** Returns a truncated body as a JSON string; "null" if it is empty. */
function cutText(text: string): string {
  return text === "" ? "null" : JSON.stringify(text);
}

/**
 * Returns a response body as JSON. This server's responses are JSON if they begin like an object; other text becomes a JSON
 * string.
 */
function asJson(text: string): string {
  if (text === "") return "null";
  return text.startsWith("{") ? text : JSON.stringify(text);
}
