// Owns the words of the refusal for a full queue: the scheduler refuses what it has no room for, and the agents side what
// it can tell the scheduler would refuse.
import { ServerError } from "../../runtime/errors.ts";

export function queueFull(maxQueue: number, retryAfterSeconds?: number): ServerError {
  const message = `the queue is full: max_queue ${maxQueue} sequences wait for a slot already; try again later`;
  return new ServerError("queue_full", message, { retryAfterSeconds });
}
