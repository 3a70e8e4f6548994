// Session store: stores sessions by id, each with its messages in one part and its images and videos in others. If there are too
// many sessions, the least recently used one is removed.
import { wallTime } from "../../runtime/clock.ts";
import type { KeptEntry, NextEntry, Part, Store } from "../../runtime/store/store.ts";
import {
  type ListedSession,
  type MatchedSession,
  type Session,
  type SessionHead,
  type SessionMessage,
  type SessionPage,
  type Sessions,
  type SessionUpdate,
  sessionLimits,
} from "../api/agent/sessions.ts";
import { lastCallsOf, messagesOf, splicesOf } from "./session-messages.ts";

/** Fields of a stored session that are read without its messages. */
export interface KeptSession extends Omit<SessionHead, "id"> {
  /** Time of the last use in milliseconds since 1970. */
  readonly usedAt: number;
}

type Kept = KeptEntry<KeptSession>;
interface Found {
  readonly id: string;
  readonly kept: Kept;
}

type PartName = "messages" | "images" | "videos";

/** Maximum number of images of a session. Beyond it, the oldest images are removed. */
const MAX_IMAGES = 64;
const MAX_IMAGE_CHARACTERS = 32 * 2 ** 20;
/** Minimum number of common messages for a match, if the request has no session id. */
const LEAST_COMMON = 2;
const PAGE = 256;

export class SessionStore implements Sessions {
  readonly #store: Store<KeptSession>;
  readonly #now: () => number;

  /** `now` returns milliseconds since 1970. */
  constructor(store: Store<KeptSession>, now: () => number = wallTime) {
    this.#store = store;
    this.#now = now;
  }

  async find(id: string): Promise<Session | null> {
    const kept = await this.#store.get(id);
    if (kept === null) return null;
    const session = {
      ...headOf(id, kept),
      messages: await this.#read<SessionMessage>(kept, "messages"),
      images: await this.#read<string>(kept, "images"),
      videos: await this.#read<Session["videos"][number]>(kept, "videos"),
    };
    await this.#touch(id, kept);
    return session;
  }

  async list({ after, limit }: Parameters<Sessions["list"]>[0]): Promise<SessionPage | null> {
    const all = (await this.#all()).sort((one, other) => other.kept.head.usedAt - one.kept.head.usedAt);
    const start = after === null ? 0 : all.findIndex(({ id }) => id === after) + 1;
    if (after !== null && start === 0) return null;
    return { sessions: all.slice(start, start + limit).map(listed), hasMore: all.length > start + limit };
  }

  async match({ client, id, digests }: Parameters<Sessions["match"]>[0]): Promise<MatchedSession | null> {
    const found = await (id === null ? this.#longest(client, digests) : this.#named(id));
    if (found === null) return null;
    const common = commonLength(found.kept.head.digests, digests);
    // Only a request with a session id gets the messages of a cut-off run. Without an id, the request may arrive while the run
    // that seems to be cut off is still running.
    const cutOff = id !== null && common === found.kept.head.digests.length;
    const messages = await this.#read<SessionMessage>(found.kept, "messages");
    await this.#touch(found.id, found.kept);
    const splices = splicesOf(messages, common, cutOff);
    return { head: headOf(found.id, found.kept), common, splices, lastCalls: lastCallsOf(messages) };
  }

  async update(update: SessionUpdate): Promise<void> {
    const { id, client, turns, digests, approvesAll, basedOn } = update;
    const base = basedOn === null ? null : await this.#store.get(basedOn);
    const files = [...new Set([...(base?.head.files ?? []), ...update.files])];
    const images = keptImages([...(base === null ? [] : await this.#read<string>(base, "images")), ...update.images]);
    const videos = [...(base === null ? [] : await this.#read<object>(base, "videos")), ...update.videos];
    const head = { turns, digests, files, approvesAll, usedAt: this.#now() };
    const parts = { messages: jsonBytes(messagesOf(update)), images: jsonBytes(images), videos: jsonBytes(videos) };
    await this.#put(id, { head, share: client, parts, expiresAt: this.#expiry() });
  }

  async put({ client, session }: Parameters<Sessions["put"]>[0]): Promise<void> {
    const { id, messages, images, videos, turns, digests, files, approvesAll } = session;
    const head = { turns, digests, files, approvesAll, usedAt: this.#now() };
    const parts = { messages: jsonBytes(messages), images: jsonBytes(images), videos: jsonBytes(videos) };
    await this.#put(id, { head, share: client, parts, expiresAt: this.#expiry() });
  }

  delete(id: string): Promise<boolean> {
    return this.#store.delete(id);
  }

  sweep(): Promise<void> {
    return this.#store.sweep();
  }

  onStop(): Promise<void> {
    return this.#store.close();
  }

  async #put(
    id: string,
    entry: NextEntry<KeptSession> & { readonly parts: Readonly<Record<string, Uint8Array>> },
  ): Promise<void> {
    await this.#store.put(id, entry);
    const all = await this.#all();
    const excess = all.length - sessionLimits.maxSessions;
    if (excess <= 0) return;
    const byUse = all.sort((one, other) => one.kept.head.usedAt - other.kept.head.usedAt);
    for (const { id: other } of byUse.filter((session) => session.id !== id).slice(0, excess)) {
      await this.#store.delete(other);
    }
  }

  /** Updates the session's time of last use. Its messages, images and videos are not written again. */
  async #touch(id: string, kept: Kept): Promise<void> {
    const next = { ...kept, head: { ...kept.head, usedAt: this.#now() }, expiresAt: this.#expiry() };
    // If the session has changed since it was read, the change has already updated `usedAt`.
    await this.#store.compareAndSet(id, kept.version, next);
  }

  #expiry(): number {
    return this.#now() + sessionLimits.idleMs;
  }

  async #named(id: string): Promise<Found | null> {
    const kept = await this.#store.get(id);
    return kept === null ? null : { id, kept };
  }

  async #longest(client: string, digests: readonly string[]): Promise<Found | null> {
    let best: Found | null = null;
    let most = LEAST_COMMON - 1;
    for (const session of await this.#all()) {
      if (session.kept.share !== client) continue;
      const common = commonLength(session.kept.head.digests, digests);
      if (common <= most) continue;
      most = common;
      best = session;
    }
    return best;
  }

  async #all(): Promise<Found[]> {
    const all: Found[] = [];
    for (let cursor: string | null = null; ; ) {
      const page = await this.#store.list({ cursor, limit: PAGE });
      all.push(...page.entries.map((kept) => ({ id: kept.key, kept })));
      cursor = page.cursor;
      if (cursor === null) return all;
    }
  }

  async #read<Item>({ parts }: Kept, name: PartName): Promise<readonly Item[]> {
    const part: Part | undefined = parts[name];
    const bytes = part === undefined ? null : await this.#store.read(part.id, 0, part.bytes);
    return bytes === null ? [] : (JSON.parse(Buffer.from(bytes).toString("utf8")) as readonly Item[]);
  }
}

function headOf(id: string, { head }: Kept): SessionHead {
  const { turns, digests, files, approvesAll } = head;
  return { id, turns, digests, files, approvesAll };
}

function listed({ id, kept: { head, parts } }: Found): ListedSession {
  const { turns, digests, files, usedAt } = head;
  const bytes = Object.values(parts).reduce((sum, part) => sum + part.bytes, 0);
  return { id, turns, messageCount: digests.length, fileCount: files.length, usedAt, bytes };
}

function commonLength(one: readonly string[], other: readonly string[]): number {
  let length = 0;
  while (length < one.length && length < other.length && one[length] === other[length]) length++;
  return length;
}

/** Returns the newest images that fit within the limits. */
function keptImages(images: readonly string[]): readonly string[] {
  let room = MAX_IMAGE_CHARACTERS;
  let from = images.length;
  while (from > 0 && images.length - from < MAX_IMAGES && (images[from - 1] as string).length <= room) {
    from--;
    room -= (images[from] as string).length;
  }
  return images.slice(from);
}

function jsonBytes(value: unknown): Uint8Array {
  return new TextEncoder().encode(JSON.stringify(value));
}
