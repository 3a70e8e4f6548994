// Error that stops grammar work because no request waits for it any more. It is never sent to a client.
import { ServerError } from "../../../runtime/errors.ts";

export function abandoned(): ServerError {
  return new ServerError("cancelled", "no request waits for the grammar any more");
}
