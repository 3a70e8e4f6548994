// The error of what is not wanted any more: it ends work, and reaches nobody who waits for that.
import { ServerError } from "../../runtime/errors.ts";

export function abandoned(): ServerError {
  return new ServerError("cancelled", "nobody waits for the grammar any more");
}
