// Errors of the Ollama protocol: a body with the message alone, and the error of paths that change the stored models, which are
// not supported.
import { z } from "zod";
import { type ErrorRecord, ServerError } from "../../runtime/errors.ts";
import { type ErrorFormat, statusOf } from "../errors.ts";

const PREFIX = "/api/";
const CHANGES = ["/api/pull", "/api/push", "/api/create", "/api/copy", "/api/delete"];

const CONFIGURED =
  "the models of this server are those of its settings; `troupe models` lists models to download, and `troupe serve -m NAME` serves one";

const schema = z
  .strictObject({ error: z.string().meta({ description: "What was expected, what was received, and what to do." }) })
  .meta({ id: "OllamaError" });

function body({ message }: ErrorRecord): string {
  return JSON.stringify({ error: message });
}

export const ollamaErrors: ErrorFormat = { statusOf, body, schema };

export function isOllamaPath(path: string): boolean {
  return path.startsWith(PREFIX);
}

/** Returns the error of a path that the protocol has but this server does not support; null for any other path. */
export function unsupportedPath(path: string): ServerError | null {
  if (!CHANGES.includes(path)) return null;
  return new ServerError("unsupported", `${path} is not supported: ${CONFIGURED}`);
}
