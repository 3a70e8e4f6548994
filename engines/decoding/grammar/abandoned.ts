// The error that ends abandoned work. No request is answered with it.
import { ServerError } from "../../../runtime/errors.ts";

export function abandoned(): ServerError {
  return new ServerError("cancelled", "no request waits for the grammar any more");
}
