// Bounded fetch: limits the size of the messages in HTTP responses: of a whole body, and of each event of an event stream.
import type { FetchLike } from "@modelcontextprotocol/client";
import { maxMessageBytes, tooLarge } from "./limits.ts";

const NEWLINE = 0x0a;
const RETURN = 0x0d;

/** Fetches; reading the response fails if a message in it is too large. `onTooLarge` is called then. */
export function boundedFetch(onTooLarge: (reason: string) => void): FetchLike {
  return async (url, init) => {
    const response = await fetch(url, init);
    if (response.body === null) return response;
    const isStream = (response.headers.get("content-type") ?? "").startsWith("text/event-stream");
    const body = response.body.pipeThrough(counter(isStream, onTooLarge));
    const { status, statusText, headers } = response;
    return new Response(body, { status, statusText, headers });
  };
}

function counter(isStream: boolean, onTooLarge: (reason: string) => void): TransformStream<Uint8Array, Uint8Array> {
  let bytes = 0;
  let isLineEmpty = false;
  return new TransformStream({
    transform(chunk, controller) {
      // An empty line ends an event.
      const end = isStream ? lastEventEnd(chunk, isLineEmpty) : -1;
      if (isStream) isLineEmpty = endsWithNewline(chunk, isLineEmpty);
      bytes = end >= 0 ? chunk.length - end : bytes + chunk.length;
      if (bytes <= maxMessageBytes) controller.enqueue(chunk);
      else {
        onTooLarge(tooLarge);
        controller.error(new Error(tooLarge));
      }
    },
  });
}

/** Returns the position after the last empty line of a chunk; -1: none. `isLineEmpty`: the previous chunk ended with a line. */
function lastEventEnd(chunk: Uint8Array, isLineEmpty: boolean): number {
  for (let at = chunk.lastIndexOf(NEWLINE); at >= 0; at = at === 0 ? -1 : chunk.lastIndexOf(NEWLINE, at - 1)) {
    const before = chunk[at - 1] === RETURN ? at - 2 : at - 1;
    if (before < 0 ? isLineEmpty : chunk[before] === NEWLINE) return at + 1;
  }
  return -1;
}

function endsWithNewline(chunk: Uint8Array, wasEmpty: boolean): boolean {
  const last = chunk.at(-1) === RETURN ? chunk.length - 2 : chunk.length - 1;
  return last < 0 ? wasEmpty : chunk[last] === NEWLINE;
}
