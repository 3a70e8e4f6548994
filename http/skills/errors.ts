// Errors of skill uploads: an upload that is no skill has the status 422.
import type { ErrorCode } from "../../runtime/errors.ts";
import type { ErrorFormat } from "../errors.ts";

/** Returns an error format with the statuses of uploads. */
export function uploadErrors(format: ErrorFormat): ErrorFormat {
  return { ...format, statusOf: (code: ErrorCode) => (code === "invalid_value" ? 422 : format.statusOf(code)) };
}
