// The error that ends work which was given up. No request is answered with it.
import { ServerError } from "../../../runtime/errors.ts";

export function abandoned(): ServerError {
  return new ServerError("cancelled", "nobody waits for the grammar any more");
}
