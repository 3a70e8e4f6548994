// Bounded fetch: limits the size of messages in HTTP responses: of a whole body, or of each event of an event stream.
import type { FetchLike } from "@modelcontextprotocol/client";
import { patientFetch } from "../../../runtime/web/patient-fetch.ts";
import { maxMessageBytes, tooLarge } from "./limits.ts";

const NEWLINE = 0x0a;
const RETURN = 0x0d;

/** Milliseconds for which the response of a cancelled call may still arrive. */
const CANCELLED_MS = 1000;
/** Maximum number of calls that are remembered so that their responses can be closed. */
const MAX_KEPT = 2048;

/**
 * Returns a fetch function. If a message in a response is too large, reading the response fails and `onTooLarge` is called.
 * Requests have no time limit, because calls have their own limits. When a call is cancelled, its response is closed.
 */
export function boundedFetch(onTooLarge: (reason: string) => void): FetchLike {
  const calls = new Map<string, AbortController>();
  return async (url, init = {}) => {
    const message = messageIn(init.body);
    if (message.method === "notifications/cancelled") {
      const call = calls.get(String(message.params?.requestId));
      setTimeout(() => call?.abort(), CANCELLED_MS).unref();
    }
    const signal = message.method === "tools/call" ? callSignal(calls, String(message.id), init) : init.signal;
    const response = await patientFetch(url, signal ? { ...init, signal } : init);
    if (response.body === null) return response;
    const isStream = (response.headers.get("content-type") ?? "").startsWith("text/event-stream");
    const body = response.body.pipeThrough(counter(isStream, onTooLarge));
    const { status, statusText, headers } = response;
    return new Response(body, { status, statusText, headers });
  };
}

/**
 * Returns the abort signal for a call's request. The latest MAX_KEPT calls are remembered, even if they have ended, because
 * aborting a completed response has no effect.
 */
function callSignal(calls: Map<string, AbortController>, id: string, { signal }: RequestInit): AbortSignal {
  const ended = new AbortController();
  calls.set(id, ended);
  const [oldest] = calls.keys();
  if (calls.size > MAX_KEPT && oldest !== undefined) calls.delete(oldest);
  return signal ? AbortSignal.any([signal, ended.signal]) : ended.signal;
}

interface Message {
  readonly id?: unknown;
  readonly method?: unknown;
  readonly params?: { readonly requestId?: unknown };
}

function messageIn(body: unknown): Message {
  if (typeof body !== "string" || body.length > maxMessageBytes) return {};
  try {
    return (JSON.parse(body) ?? {}) as Message;
  } catch {
    return {};
  }
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

/**
 * Returns the position after the last empty line of a chunk; -1 = no empty line. `isLineEmpty`: whether the line that the chunk
 * continues is empty so far.
 */
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
