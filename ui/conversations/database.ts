// Database of this browser (IndexedDB): conversations and their messages.
import { type DBSchema, type IDBPDatabase, openDB } from "idb";
import type { Conversation, Message } from "./records.ts";

interface Schema extends DBSchema {
  conversations: { key: string; value: Conversation };
  messages: { key: string; value: Message; indexes: { conversation: string } };
}

let opened: Promise<IDBPDatabase<Schema>> | null = null;

function database(): Promise<IDBPDatabase<Schema>> {
  opened ??= openDB<Schema>("troupe", 1, {
    upgrade(db) {
      db.createObjectStore("conversations", { keyPath: "id" });
      db.createObjectStore("messages", { keyPath: "id" }).createIndex("conversation", "conversation");
    },
    blocking(_before, _after, event) {
      // Another tab needs a newer version of the database, so this connection must be closed.
      (event.target as IDBDatabase).close();
      opened = null;
    },
  });
  return opened;
}

export async function allConversations(): Promise<readonly Conversation[]> {
  return await (await database()).getAll("conversations");
}

export async function conversationBy(id: string): Promise<Conversation | null> {
  return (await (await database()).get("conversations", id)) ?? null;
}

export async function messagesOf(conversation: string): Promise<readonly Message[]> {
  return await (await database()).getAllFromIndex("messages", "conversation", conversation);
}

/** Calls `take` with each stored message until `take` returns false. */
export async function eachMessage(take: (message: Message) => boolean): Promise<void> {
  const transaction = (await database()).transaction("messages");
  for await (const { value } of transaction.store) if (!take(value)) return;
}

/** Stores records in one transaction: either all or none. */
export async function put(records: {
  readonly conversations?: readonly Conversation[];
  readonly messages?: readonly Message[];
}): Promise<void> {
  const transaction = (await database()).transaction(["conversations", "messages"], "readwrite");
  for (const conversation of records.conversations ?? []) {
    void transaction.objectStore("conversations").put(conversation);
  }
  for (const message of records.messages ?? []) void transaction.objectStore("messages").put(message);
  await transaction.done;
}

export async function removeMessages(ids: Iterable<string>): Promise<void> {
  const transaction = (await database()).transaction("messages", "readwrite");
  for (const id of ids) void transaction.store.delete(id);
  await transaction.done;
}

export async function removeConversation(id: string): Promise<void> {
  const transaction = (await database()).transaction(["conversations", "messages"], "readwrite");
  void transaction.objectStore("conversations").delete(id);
  const messages = transaction.objectStore("messages");
  for (const key of await messages.index("conversation").getAllKeys(id)) void messages.delete(key);
  await transaction.done;
}
