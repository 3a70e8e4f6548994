// Owns the request log (`log`): each request for inference and its answer, in full, as one JSON line in a file. Headers are
// no part of it; secrets in bodies are struck out. It keeps a copy of an answer as it leaves, within bounds. What a response
// in the background has become is in it when somebody fetches that: its request was answered before there was anything.
import { ServerError } from "../runtime/errors.ts";
import { LineFile } from "../runtime/line-file.ts";
import { withoutSecrets } from "../runtime/secrets.ts";
import type { Exchange } from "./exchange.ts";
import { namedModel } from "./json.ts";
import type { Log } from "./log.ts";
import type { ExchangeObserver } from "./observer.ts";

/** Most of one body that is logged; what was cut is counted. */
export const maxLoggedBytes = 4 * 2 ** 20;
/** Most of all answers under way that is kept for the log. */
const maxHeldBytes = 256 * 2 ** 20;
const maxWaitingBytes = 64 * 2 ** 20;

const decoder = new TextDecoder();

export class RequestLog implements ExchangeObserver {
  readonly #file: LineFile;
  readonly #answers = new Map<Exchange, AnswerCopy>();
  #heldBytes = 0;

  private constructor(file: LineFile) {
    this.#file = file;
  }

  /** Throws config_invalid where the file cannot be opened. */
  static async open(path: string, log: Log): Promise<RequestLog> {
    return new RequestLog(await openLogFile(path, log));
  }

  began(exchange: Exchange): void {
    const copy: AnswerCopy = { pieces: [], bytes: 0, cutBytes: 0 };
    this.#answers.set(exchange, copy);
    exchange.tap = (body) => this.#keep(copy, body);
  }

  ended(exchange: Exchange): void {
    const copy = this.#answers.get(exchange);
    if (copy === undefined) return;
    this.#answers.delete(exchange);
    this.#heldBytes -= copy.bytes;
    this.#file.append(entry(exchange, copy));
  }

  close(): Promise<void> {
    return this.#file.close();
  }

  /** Pieces are kept whole or not at all. */
  #keep(copy: AnswerCopy, body: string | Uint8Array): void {
    const bytes = Buffer.byteLength(body);
    const fits = copy.bytes + bytes <= maxLoggedBytes && this.#heldBytes + bytes <= maxHeldBytes;
    if (!fits || copy.cutBytes > 0) {
      copy.cutBytes += bytes;
      return;
    }
    copy.pieces.push(typeof body === "string" ? body : decoder.decode(body));
    copy.bytes += bytes;
    this.#heldBytes += bytes;
  }
}

/** The file that `log` names. Throws config_invalid where it cannot be opened. */
export async function openLogFile(path: string, log: Log): Promise<LineFile> {
  const onLost = (lost: number, reason: string) => {
    log.warn({ lost, reason, file: path }, "entries of the request log could not be written and are lost");
  };
  try {
    return await LineFile.open(path, { maxWaitingBytes, onLost });
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    const message = `log expects a file that can be written, or made in a folder that is there; got ${reason}`;
    throw new ServerError("config_invalid", message, { param: "log", cause: error });
  }
}

interface AnswerCopy {
  readonly pieces: string[];
  bytes: number;
  cutBytes: number;
}

function entry(exchange: Exchange, { pieces, cutBytes }: AnswerCopy): string {
  const { request, model, status, id: requestId } = exchange;
  const requestCut = Math.max(request.body.byteLength - maxLoggedBytes, 0);
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
  const response = exchange.isStream ? payloads(answer) : isCut ? cutText(answer) : asJson(answer);
  return `${JSON.stringify(head).slice(0, -1)},"request":${requestBody(exchange)},"response":${response}}`;
}

/** As it came where it is whole JSON, else as text; null where there was none. Line breaks in JSON stand between its tokens only. */
function requestBody({ request }: Exchange): string {
  if (request.body.byteLength === 0) return "null";
  const text = withoutSecrets(decoder.decode(request.body.subarray(0, maxLoggedBytes)));
  const isJson = namedModel(request) !== null && request.body.byteLength <= maxLoggedBytes;
  return isJson ? text.replace(/[\r\n]+/g, " ") : JSON.stringify(text);
}

/** The data of each whole event of a stream, in order. */
function payloads(stream: string): string {
  const whole = stream.slice(0, stream.lastIndexOf("\n\n") + 1);
  const data = whole.split("\n").flatMap((line) => (line.startsWith("data: ") ? [asJson(line.slice(6))] : []));
  return `[${data.join(",")}]`;
}

/** The beginning of a body, which is no JSON of its own. */
function cutText(text: string): string {
  return text === "" ? "null" : JSON.stringify(text);
}

/** What we answer is JSON where it begins like an object. */
function asJson(text: string): string {
  if (text === "") return "null";
  return text.startsWith("{") ? text : JSON.stringify(text);
}
