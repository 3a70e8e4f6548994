// Transcript: saves a conversation as a file, either as JSON in the form of a chat request body or as Markdown. Called by
// /save.
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { ServerError } from "../../runtime/errors.ts";
import { homeFolder } from "../../runtime/host/home.ts";
import type { Conversation } from "./conversation.ts";

/**
 * Writes the conversation and returns the path of the file. Throws invalid_value if the file exists and `overwrite` is false.
 */
export async function saveTranscript(conversation: Conversation, file: string, overwrite: boolean): Promise<string> {
  const path = file.startsWith("~/") ? join(homeFolder(), file.slice(2)) : file;
  const text = path.toLowerCase().endsWith(".json") ? transcriptJson(conversation) : transcriptMarkdown(conversation);
  try {
    await writeFile(path, text, { flag: overwrite ? "w" : "wx" });
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    const problem = code === "EEXIST" ? `it exists; /save! ${file} overwrites it` : message;
    throw new ServerError("invalid_value", `cannot write "${path}": ${problem}`, { cause });
  }
  return path;
}

export function transcriptJson(conversation: Conversation): string {
  const { model, adapter, fields } = conversation;
  const chosen = adapter === null ? fields : { adapter, ...fields };
  return `${JSON.stringify({ model, ...chosen, messages: conversation.messages() }, null, 2)}\n`;
}

export function transcriptMarkdown({ model, adapter, system, turns }: Conversation): string {
  const sections = [
    `# Conversation with ${adapter === null ? model : `${model}, adapter ${adapter}`}`,
    ...(system === null ? [] : ["## System", system]),
    ...turns.flatMap(({ question, answer, isCut }) => [
      "## User",
      question,
      "## Assistant",
      ...(isCut ? [answer, "_(stopped here)_"] : [answer]),
    ]),
  ];
  return `${sections.join("\n\n")}\n`;
}
