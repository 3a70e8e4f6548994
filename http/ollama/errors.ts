// Error format of the Ollama protocol: a body that contains only the error message.
import { z } from "zod";
import type { ErrorRecord } from "../../runtime/errors.ts";
import { type ErrorFormat, statusOf } from "../errors.ts";

const schema = z
  .strictObject({ error: z.string().meta({ description: "What was expected, what was received, and what to do." }) })
  .meta({ id: "OllamaError" });

function body({ message }: ErrorRecord): string {
  return JSON.stringify({ error: message });
}

export const ollamaErrors: ErrorFormat = { statusOf, body, schema };

export function isOllamaPath(path: string): boolean {
  return path.startsWith("/api/");
}
