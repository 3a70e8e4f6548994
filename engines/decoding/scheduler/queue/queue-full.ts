// Errors of a full queue. They are thrown by the scheduler, and by GenerationQueue for requests
// that the scheduler would reject.
import { ServerError } from "../../../../runtime/errors.ts";

export function queueFull(maxQueue: number, retryAfterSeconds?: number): ServerError {
  const message = `the queue is full: max_queue ${maxQueue} sequences already wait for a slot; try again later`;
  return new ServerError("queue_full", message, { retryAfterSeconds });
}

/**
 * Error of a request that was preempted because its client read too slowly, and then lost its place in the
 * queue to another client's request.
 */
export function displacedWhilePreempted(maxQueue: number): ServerError {
  const message =
    "the client read this answer too slowly, so it lost its slot; the queue is full " +
    `(max_queue ${maxQueue} sequences), and a request of another client took its place; read faster, or try again later`;
  return new ServerError("reader_stalled", message);
}

/** Error of a waiting request whose place in the queue went to another client's request. */
export function displacedWhileWaiting(maxQueue: number): ServerError {
  const message =
    `the queue is full (max_queue ${maxQueue} sequences), and this client has most of the sequences in it: ` +
    "a request of another client took the place of this one; try again later";
  return new ServerError("queue_full", message);
}
