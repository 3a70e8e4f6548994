// Library: the list of this browser's conversations, the same in all tabs. The database has the current state. Each change is
// announced to the other tabs, which then read the conversation again.
import { signal } from "@preact/signals";
import * as database from "./database.ts";
import { type ChatSettings, type Conversation, newId, usualSettings } from "./records.ts";

/** All conversations, the latest first. */
export const conversations = signal<readonly Conversation[]>([]);
/** Whether the conversations have been read from the database. */
export const isRead = signal(false);

/** Message to the other tabs. `stop`: the conversation's running answers are to be stopped; `change`: it has changed. */
interface Message {
  readonly kind: "change" | "stop";
  readonly conversation: string;
}
type Listener = (message: Message) => void;

const channel = new BroadcastChannel("troupe.conversations");
const listeners = new Set<Listener>();

channel.onmessage = ({ data }: MessageEvent<Message>) => {
  if (data.kind === "change") void refresh(data.conversation);
  for (const listener of listeners) listener(data);
};

/** Calls `listener` with each message of another tab. Returns a function that removes the listener. */
export function onForeignMessage(listener: Listener): () => void {
  listeners.add(listener);
  return () => void listeners.delete(listener);
}

/** Notifies the other tabs that a conversation has changed. */
export function announce(conversation: string): void {
  channel.postMessage({ kind: "change", conversation } satisfies Message);
}

/** Makes the other tabs stop the running answers of a conversation. */
export function announceStop(conversation: string): void {
  channel.postMessage({ kind: "stop", conversation } satisfies Message);
}

export async function readLibrary(): Promise<void> {
  conversations.value = sorted(await database.allConversations());
  isRead.value = true;
}

/** Creates an empty conversation. It is not stored before its first message. */
export function newConversation(settings: Partial<ChatSettings> = {}): Conversation {
  const now = Date.now();
  const all = { ...usualSettings, ...settings };
  return { id: newId(), title: "", folder: "", createdAt: now, updatedAt: now, leaf: null, settings: all };
}

export async function storeConversation(conversation: Conversation): Promise<void> {
  take(conversation);
  await database.put({ conversations: [conversation] });
  announce(conversation.id);
}

/** Adds a stored conversation to the list, or replaces it there. */
export function take(conversation: Conversation): void {
  conversations.value = sorted([...conversations.value.filter(({ id }) => id !== conversation.id), conversation]);
}

export async function deleteConversation(id: string): Promise<void> {
  conversations.value = conversations.value.filter((one) => one.id !== id);
  await database.removeConversation(id);
  announce(id);
}

async function refresh(id: string): Promise<void> {
  const found = await database.conversationBy(id);
  if (found !== null) take(found);
  else conversations.value = conversations.value.filter((one) => one.id !== id);
}

function sorted(list: readonly Conversation[]): readonly Conversation[] {
  return [...list].sort((one, other) => other.updatedAt - one.updatedAt);
}
