// Speech call: the parameters of one call of a speech model.
import type { SpeechLimits } from "../messages.ts";

export interface Call<Event> {
  readonly limits: SpeechLimits;
  /** Aborted when the call must end. The abort reason is the ServerError with which the call ends. */
  readonly signal: AbortSignal;
  /** Sends an event. Resolves when the reader is ready for the next one. */
  send(event: Event): Promise<void>;
  /** Runs one use of the model when it is the client's turn. */
  turn<T>(use: () => Promise<T>): Promise<T>;
}
