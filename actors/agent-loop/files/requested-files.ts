// Requested files: the note in the prompt that lists the files that a request expects.
import type { PromptChanges } from "../../../engines/generation.ts";
import type { RequestedFile } from "../../api/agent/agents.ts";

/** Returns the note for the last user message. */
export function notesOnRequested(requested: readonly RequestedFile[]): PromptChanges["notes"] {
  if (requested.length === 0) return [];
  const lines = requested.map(({ name, format, description }) => {
    const kind = format === null ? "" : ` (${format})`;
    return `- ${JSON.stringify(name)}${kind}${description === null ? "" : `: ${description}`}`;
  });
  return [{ at: null, text: `[Files to produce in the working directory]\n${lines.join("\n")}` }];
}
