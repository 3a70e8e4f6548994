// The error that ends work for which no request waits any more. It is never sent to a client.
import { ServerError } from "../../../runtime/errors.ts";

export function abandoned(): ServerError {
  return new ServerError("cancelled", "no request waits for the grammar any more");
}
