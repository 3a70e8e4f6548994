import { ServerError } from "../../../runtime/errors.ts";

export function larkGrammar(_grammar: string): string {
  throw new ServerError("unsupported", "lark grammars are not supported by this server yet");
}
