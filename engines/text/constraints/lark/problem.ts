// Owns the error for what is wrong in a Lark grammar: named with its line.
import { ServerError } from "../../../../runtime/errors.ts";

export function larkError(code: "invalid_value" | "unsupported", line: number, message: string): ServerError {
  return new ServerError(code, `Lark grammar, line ${line}: ${message}`);
}
