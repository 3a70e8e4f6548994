import { ServerError } from "../../../runtime/errors.ts";
import type { Translation } from "../translate.ts";

export function llguidanceGrammar(_grammar: string, _schema: (schema: unknown) => Translation): Translation {
  throw new ServerError("unsupported", "llguidance grammars are not supported by this server yet");
}
