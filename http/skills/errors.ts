// Errors of skill uploads: an invalid skill is rejected with status 422.
import type { ErrorCode } from "../../runtime/errors.ts";
import type { ErrorFormat } from "../errors.ts";

/** Returns the error format with status 422 for the code `invalid_value`. */
export function uploadErrors(format: ErrorFormat): ErrorFormat {
  return { ...format, statusOf: (code: ErrorCode) => (code === "invalid_value" ? 422 : format.statusOf(code)) };
}
