// Requested files: the prompt note that lists the files that the client wants the model to produce.
import type { PromptChanges } from "../../../engines/generation.ts";
import type { RequestedFile } from "../../api/agent/agents.ts";

/** Returns the note that is added to the last user message. */
export function notesOnRequested(requested: readonly RequestedFile[]): PromptChanges["notes"] {
  if (requested.length === 0) return [];
  const lines = requested.map(({ name, format, description }) => {
    const kind = format === null ? "" : ` (${format})`;
    return `- ${JSON.stringify(name)}${kind}${description === null ? "" : `: ${description}`}`;
  });
  return [{ at: null, text: `[Files to produce in the working directory]\n${lines.join("\n")}` }];
}
