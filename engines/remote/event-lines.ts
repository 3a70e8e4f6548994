// Event lines: extracts the data of each event from the bytes of a stream of server-sent events.
import { StringDecoder } from "node:string_decoder";
import { UpstreamFailure } from "./upstream.ts";

/**
 * Maximum length of an event in characters. It is large, because the first event of vLLM may repeat the tokens of the
 * prompt.
 */
const maxEventLength = 16 * 2 ** 20;

export class EventLines {
  readonly #decoder = new StringDecoder("utf8");
  /** Start of a line whose end has not been received yet. */
  #rest = "";

  /** Returns the data of each event that is now complete. Throws UpstreamFailure if an event is too long. */
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

/**
 * Returns the data of a line; null if it has none. Older versions of llama-server send errors in the field "error"
 * instead of "data".
 */
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
