// Errors of skill uploads: an upload that is no skill has the status 422, in the common format and in that of the messages
// protocol.
import type { ErrorCode } from "../../runtime/errors.ts";
import { commonErrors, statusOf as commonStatusOf, type ErrorFormat } from "../errors.ts";
import { messagesErrors } from "../messages/errors.ts";

function statusOf(code: ErrorCode): number {
  return code === "invalid_value" ? 422 : commonStatusOf(code);
}

export const skillUploadErrors: ErrorFormat = { ...commonErrors, statusOf };
export const messagesUploadErrors: ErrorFormat = { ...messagesErrors, statusOf };
