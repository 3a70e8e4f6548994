// Limits of a fetch in size and time, and the errors that report them.
import { ServerError } from "../errors.ts";

export interface FetchLimits {
  /** Maximum time in ms from a request (the first one or a redirect) until all headers of its response have arrived. */
  readonly headersMs: number;
  /** Maximum time in ms of the fetch, redirects included. */
  readonly totalMs: number;
  readonly redirects: number;
  /** Maximum size of the body in bytes as it is sent, and after decompression. */
  readonly sentBytes: number;
  readonly bodyBytes: number;
  /** Minimum average speed of the body in bytes per second, measured after slowStartMs; 0 = no minimum. */
  readonly minBytesPerSecond: number;
}

/** Time in ms before the speed of a body is measured. */
export const slowStartMs = 3000;
export const maxHeaderBytes = 16_384;
export const maxHeaders = 128;
/** Maximum number of informational responses (1xx) before a response. */
export const maxInformational = 8;
export const maxUrlLength = 8192;
/** Maximum number of host names of one thread that are being looked up, abandoned ones included. */
export const maxLookups = 16;

/** Returns the error for a fetch that is not allowed or has failed. */
export function refused(message: string, cause?: unknown): ServerError {
  return new ServerError("invalid_value", message, cause === undefined ? {} : { cause });
}
