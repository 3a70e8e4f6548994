// Export and import of conversations. JSON contains all branches, markdown only the branch that is shown.
import * as database from "./database.ts";
import { announce, take } from "./library.ts";
import { type Answer, type Conversation, type Message, newId, textOf, usualSettings } from "./records.ts";
import { isForest } from "./tree.ts";

const format = "troupe.conversations.1";
const mostBytes = 200_000_000;

interface Exported {
  readonly format: typeof format;
  readonly conversations: readonly { readonly conversation: Conversation; readonly messages: readonly Message[] }[];
}

export async function exportJson(ids: readonly string[]): Promise<string> {
  const conversations = [];
  for (const id of ids) {
    const conversation = await database.conversationBy(id);
    if (conversation !== null) conversations.push({ conversation, messages: await database.messagesOf(id) });
  }
  return JSON.stringify({ format, conversations } satisfies Exported, null, 1);
}

export function exportMarkdown(title: string, path: readonly Message[]): string {
  const parts = path.map((message) => {
    const name = message.role === "user" ? "User" : (message as Answer).model || "Assistant";
    return `## ${name}\n\n${textOf(message)}`;
  });
  return `${[`# ${title}`, ...parts].join("\n\n")}\n`;
}

/**
 * Imports the conversations in an exported file. They get new ids, so that no existing conversation is replaced. Throws an
 * Error if the file is not an export.
 */
export async function importJson(file: File): Promise<number> {
  if (file.size > mostBytes) throw new Error(`expected a file of at most ${mostBytes} bytes, got ${file.size}`);
  const { conversations } = parsed(await file.text());
  for (const { conversation, messages } of conversations) {
    const ids = new Map([conversation, ...messages].map(({ id }) => [id, newId()]));
    const idOf = (id: string | null): string | null => (id === null ? null : (ids.get(id) ?? null));
    const own = ids.get(conversation.id) as string;
    const settings = { ...usualSettings, ...conversation.settings };
    const added: Conversation = { ...conversation, id: own, leaf: idOf(conversation.leaf), settings };
    const all = messages.map((message) => ({
      ...message,
      ...{ id: ids.get(message.id) as string, conversation: own, parent: idOf(message.parent) },
      // A running answer cannot be resumed here; only the browser that exported it could.
      ...(message.role === "assistant" && message.status === "running" && { status: "incomplete" as const }),
    }));
    await database.put({ conversations: [added], messages: all });
    take(added);
    announce(own);
  }
  return conversations.length;
}

export function saveAs(name: string, text: string): void {
  const url = URL.createObjectURL(new Blob([text]));
  const link = document.createElement("a");
  link.href = url;
  link.download = name.replace(/[/\\:*?"<>|]/g, "_");
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

function parsed(text: string): Exported {
  try {
    const value = JSON.parse(text) as Exported;
    const isWhole = value.conversations.every(
      ({ conversation: { id, title }, messages }) =>
        typeof id === "string" && typeof title === "string" && messages.every(isMessage) && isForest(messages),
    );
    if (value.format === format && isWhole) return value;
  } catch {
    // The text is no JSON, or one of its parts is missing.
  }
  throw new Error("expected an export of conversations of troupe");
}

/** Checks the fields without which a message cannot be shown or searched. */
function isMessage({ id, parent, ...message }: Message): boolean {
  if (typeof id !== "string" || (parent !== null && typeof parent !== "string")) return false;
  if (message.role === "user") return typeof message.text === "string" && Array.isArray(message.files);
  return message.role === "assistant" && Array.isArray(message.output) && Array.isArray(message.activity);
}
