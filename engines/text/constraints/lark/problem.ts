// Lark error: an error in a Lark grammar, with its line.
import { ServerError } from "../../../../runtime/errors.ts";

export function larkError(code: "invalid_value" | "unsupported", line: number, message: string): ServerError {
  return new ServerError(code, `Lark grammar, line ${line}: ${message}`);
}
