// Requested files: what the model is told about the files that a request expects, and placeholders for those that no call made.
import type { PromptChanges } from "../../engines/generation.ts";
import type { RequestedFile } from "../api/agent/agents.ts";
import type { Files, FileToStore, StoredFile } from "../api/agent/files.ts";

/** Returns the note for the last user message. */
export function notesOnRequested(requested: readonly RequestedFile[]): PromptChanges["notes"] {
  if (requested.length === 0) return [];
  const lines = requested.map(({ name, format, description }) => {
    const kind = format === null ? "" : ` (${format})`;
    return `- ${JSON.stringify(name)}${kind}${description === null ? "" : `: ${description}`}`;
  });
  return [{ at: null, text: `[Files to produce in the working directory]\n${lines.join("\n")}` }];
}

export interface RequestedRun extends Pick<FileToStore, "session" | "client"> {
  readonly run: string;
  /** Number of the last round, which runs no calls. */
  readonly round: number;
  readonly turn: number;
  readonly requested: readonly RequestedFile[];
  /** Names of the files that the run has produced, or has reported as missing. */
  readonly produced: ReadonlySet<string>;
}

/** Stores a placeholder for each requested file that the run has not produced. Returns the placeholders. */
export async function storeMissing(
  files: Files,
  { run, round, turn, session, client, requested, produced }: RequestedRun,
): Promise<readonly StoredFile[]> {
  const missing = requested.filter(({ name }) => !produced.has(name));
  return await Promise.all(
    missing.map(({ name, format }, i) =>
      files.add({
        id: `file_${run}_r${round}_${i}`,
        name,
        format,
        purpose: "agent_output",
        source: { tool: "request", round, turn },
        session,
        client,
        staged: null,
        failure: { code: "not_produced", message: `no tool created the file ${JSON.stringify(name)}` },
      }),
    ),
  );
}
