// Event lines: splits the bytes of a stream of server-sent events into the data of its events.
import { StringDecoder } from "node:string_decoder";
import { UpstreamFailure } from "./upstream.ts";

/** Maximum length of an event in characters. The first event of vLLM may repeat the tokens of the prompt. */
const maxEventLength = 16 * 2 ** 20;

export class EventLines {
  readonly #decoder = new StringDecoder("utf8");
  /** Beginning of a line whose end has not arrived. */
  #rest = "";

  /** Returns the data of the events that are complete. Throws UpstreamFailure for an event that is too long. */
  push(bytes: Buffer): readonly string[] {
    const text = this.#rest + this.#decoder.write(bytes);
    const events: string[] = [];
    let start = 0;
    for (let end = text.indexOf("\n"); end >= 0; end = text.indexOf("\n", start)) {
      const data = dataOf(text, start, end);
      if (data !== null) events.push(data);
      start = end + 1;
    }
    this.#rest = text.slice(start);
    if (this.#rest.length > maxEventLength) {
      throw new UpstreamFailure("garbage", `expected events of at most ${maxEventLength} characters; got a longer one`);
    }
    return events;
  }
}

/** Returns the data of a line; null: it has none. Errors of older versions of llama-server have their own field. */
function dataOf(text: string, start: number, end: number): string | null {
  const last = text.charCodeAt(end - 1) === carriageReturn ? end - 1 : end;
  for (const field of ["data:", "error:"]) {
    if (!text.startsWith(field, start)) continue;
    const from = start + field.length;
    return text.slice(text.charCodeAt(from) === space ? from + 1 : from, last);
  }
  return null;
}

const carriageReturn = 13;
const space = 32;
