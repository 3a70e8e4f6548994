// Call of a speech model: what the code of one call uses.
import type { SpeechLimits } from "../messages.ts";

export interface Call<Event> {
  readonly limits: SpeechLimits;
  /** Aborted when the call must end. The reason is the ServerError that it ends with. */
  readonly signal: AbortSignal;
  /** Sends an event. Resolves when the reader has room for the next one. */
  send(event: Event): Promise<void>;
  /** Runs one use of the model when it is the client's turn. */
  turn<T>(use: () => Promise<T>): Promise<T>;
}
