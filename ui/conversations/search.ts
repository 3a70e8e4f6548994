// Full-text search in the messages of all conversations.
import * as database from "./database.ts";
import { textOf } from "./records.ts";

const mostHits = 50;
const before = 30;
const excerptLength = 120;

export interface Hit {
  readonly conversation: string;
  readonly message: string;
  readonly excerpt: string;
}

/** Returns the messages that contain all words, in any order and ignoring case. `signal`: aborted when a newer search begins. */
export async function search(words: string, signal: AbortSignal): Promise<readonly Hit[]> {
  const wanted = words
    .toLowerCase()
    .split(/\s+/)
    .filter((word) => word !== "");
  const hits: Hit[] = [];
  if (wanted.length === 0) return hits;
  await database.eachMessage((message) => {
    const text = textOf(message);
    const lower = text.toLowerCase();
    if (wanted.every((word) => lower.includes(word))) {
      const from = Math.max(0, lower.indexOf(wanted[0] as string) - before);
      const excerpt = text.slice(from, from + excerptLength).replace(/\s+/g, " ");
      hits.push({ conversation: message.conversation, message: message.id, excerpt });
    }
    return hits.length < mostHits && !signal.aborted;
  });
  return hits;
}
