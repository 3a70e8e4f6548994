// Events of a speech call: waits for the first events, so that an early error gets its own HTTP status.
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
 * Returns the first event of a call and an iterator over the later events. Throws the error of a call that fails before its
 * first event. The iterator throws later errors.
 */
export async function begunCall<Event extends CallEvent>(batches: AsyncIterable<readonly Event[]>) {
  const events = flattened(batches);
  const first = await events.next();
  if (first.done === true) throw new ServerError("cancelled", "the request was cancelled");
  return { first: first.value, events };
}

/** Creates the error of a call that ended without the event `done`: its audio or transcript is incomplete. */
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
