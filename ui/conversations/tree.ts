// Tree of messages: the branch that is shown, and the branches beside it.
import type { Message } from "./records.ts";

export type Messages = ReadonlyMap<string, Message>;

/** Returns the messages from the first one to `leaf`. */
export function pathTo(messages: Messages, leaf: string | null): readonly Message[] {
  const path: Message[] = [];
  for (let id = leaf; id !== null; ) {
    const message = messages.get(id);
    if (message === undefined || path.length > messages.size) break;
    path.push(message);
    id = message.parent;
  }
  return path.reverse();
}

/** Returns the messages with the same parent and role, the oldest first. */
export function siblingsOf(messages: Messages, message: Message): readonly Message[] {
  return [...messages.values()]
    .filter(({ parent, role }) => parent === message.parent && role === message.role)
    .sort((one, other) => one.createdAt - other.createdAt || (one.id < other.id ? -1 : 1));
}

/** Returns the last message of the newest branch below a message. */
export function leafBelow(messages: Messages, id: string): string {
  let leaf = id;
  for (;;) {
    let newest: Message | null = null;
    for (const message of messages.values()) {
      if (message.parent === leaf && (newest === null || message.createdAt > newest.createdAt)) newest = message;
    }
    if (newest === null) return leaf;
    leaf = newest.id;
  }
}

/** Returns the ids of a message and of all messages below it. */
export function branchOf(messages: Messages, id: string): ReadonlySet<string> {
  const ids = new Set([id]);
  let size = 0;
  while (size < ids.size) {
    size = ids.size;
    for (const { id: own, parent } of messages.values()) if (parent !== null && ids.has(parent)) ids.add(own);
  }
  return ids;
}
