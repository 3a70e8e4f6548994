// Errors for a full queue. The scheduler throws them, and GenerationQueue (actors/agent-loop) for what the scheduler would refuse.
import { ServerError } from "../../../../runtime/errors.ts";

export function queueFull(maxQueue: number, retryAfterSeconds?: number): ServerError {
  const message = `the queue is full: max_queue ${maxQueue} sequences wait for a slot already; try again later`;
  return new ServerError("queue_full", message, { retryAfterSeconds });
}

/** For an answer that has begun: its reader is behind, the queue is full, and another client's request takes its place. */
export function displacedFromParking(maxQueue: number): ServerError {
  const message =
    "the client read this answer too slowly, so that it waited without a slot; the queue is full (max_queue " +
    `${maxQueue} sequences), and a request of another client took its place; read faster, or try again later`;
  return new ServerError("reader_stalled", message);
}

/** For a request that waited: the queue is full, and another client's takes its place. */
export function displacedFromQueue(maxQueue: number): ServerError {
  const message =
    `the queue is full (max_queue ${maxQueue} sequences), and this client has most of those that wait in it: ` +
    "a request of another client took the place of this one; try again later";
  return new ServerError("queue_full", message);
}
