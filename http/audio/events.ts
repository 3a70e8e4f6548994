// Events of a speech call as a response: the first events are awaited, so that an error gets its own HTTP status.
import type { Speech } from "../../actors/api/speech/speech.ts";
import { type ErrorRecord, fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import type { Context } from "../context.ts";

interface CallEvent {
  readonly type: string;
  readonly error?: ErrorRecord;
}

/** Returns the speech service. Throws `unsupported` on a server without it. */
export function speechOf({ speech }: Pick<Context, "speech">): Speech {
  if (speech !== null) return speech;
  throw new ServerError("unsupported", 'this server has no speech models: add a [[models]] entry of kind = "speech"');
}

/**
 * Returns the first event of a call, and the events after it one by one. Throws the error of a call that fails before its first
 * event. Later errors are thrown by the iteration.
 */
export async function begunCall<Event extends CallEvent>(batches: AsyncIterable<readonly Event[]>) {
  const events = flattened(batches);
  const first = await events.next();
  if (first.done === true) throw new ServerError("cancelled", "the request was cancelled");
  return { first: first.value, events };
}

/** Returns the error of a call that ended without `done`: the audio or the transcript is incomplete. */
export function incomplete(): ServerError {
  return new ServerError("peer_gone", "the model ended before the answer was complete; send the request again");
}

async function* flattened<Event extends CallEvent>(batches: AsyncIterable<readonly Event[]>): AsyncGenerator<Event> {
  for await (const batch of batches) {
    for (const event of batch) {
      if (event.error !== undefined) throw fromErrorRecord(event.error);
      yield event;
    }
  }
}
