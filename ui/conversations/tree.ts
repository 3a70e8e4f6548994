// Message tree: finds the branch that is shown, and alternative branches.
import type { Message } from "./records.ts";

export type Messages = ReadonlyMap<string, Message>;
/** Messages by parent id, the oldest first. */
export type Children = ReadonlyMap<string | null, readonly Message[]>;

export function childrenOf(messages: Messages): Children {
  const children = new Map<string | null, Message[]>();
  for (const message of messages.values()) {
    const list = children.get(message.parent);
    if (list === undefined) children.set(message.parent, [message]);
    else list.push(message);
  }
  for (const list of children.values()) {
    if (list.length > 1) list.sort((one, other) => one.createdAt - other.createdAt || (one.id < other.id ? -1 : 1));
  }
  return children;
}

/** Returns whether the messages have different ids, and none is below itself. */
export function isForest(list: readonly Pick<Message, "id" | "parent">[]): boolean {
  const messages = new Map(list.map((message) => [message.id, message]));
  /** Messages whose path to a root is known to end. */
  const ended = new Set<string>();
  for (const { id } of list) {
    const path = new Set<string>();
    for (let next = messages.get(id); next !== undefined && !ended.has(next.id); ) {
      if (path.has(next.id)) return false;
      path.add(next.id);
      next = next.parent === null ? undefined : messages.get(next.parent);
    }
    for (const one of path) ended.add(one);
  }
  return messages.size === list.length;
}

/** Returns the messages from the root to `leaf`, in order. */
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

/** Returns `leaf`; if there is no such message, for example because another tab has deleted it, the last message of the newest branch. */
export function leafIn(messages: Messages, leaf: string | null): string | null {
  return leaf !== null && messages.has(leaf) ? leaf : leafBelow(childrenOf(messages), null);
}

/** Returns a message and its siblings: the messages with the same parent and role, the oldest first. */
export function siblingsOf(children: Children, { parent, role }: Message): readonly Message[] {
  return (children.get(parent) ?? []).filter((one) => one.role === role);
}

/** Returns the last message of the newest branch below a message. With null, starts at the newest root message. */
export function leafBelow(children: Children, id: string | null): string | null {
  let leaf = id;
  // An earlier version imported messages that are below themselves, so the number of steps is bounded.
  for (let left = children.size; left > 0; left--) leaf = children.get(leaf)?.at(-1)?.id ?? leaf;
  return leaf;
}

/** Returns the ids of a message and all messages below it. */
export function branchOf(children: Children, id: string): ReadonlySet<string> {
  const ids = new Set([id]);
  // The iteration over a set includes ids that are added during it.
  for (const parent of ids) for (const child of children.get(parent) ?? []) ids.add(child.id);
  return ids;
}
