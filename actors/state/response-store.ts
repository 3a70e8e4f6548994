// Response store: stores responses in a key-value store. Runs on the state thread; in tests, on the caller's thread. It
// determines whether the server that generates a response is still running.
import { setImmediate as nextTurn, setTimeout as sleep } from "node:timers/promises";
import { joinBytes } from "../../runtime/bytes.ts";
import { wallTime } from "../../runtime/clock.ts";
import { ServerError } from "../../runtime/errors.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { Entry, KeptEntry, Part, Store } from "../../runtime/store/store.ts";
import type {
  ClaimedResponse,
  ClaimRequest,
  FoundResponse,
  ItemPage,
  ItemTexts,
  ListedPage,
  ListedResponse,
  PageRequest,
  ResponseUpdate,
  Runner,
  SliceRequest,
  Span,
  StoredResponse,
  StoredResponses,
  Turn,
  UpdateOutcome,
} from "../api/stored-responses.ts";
import { ItemList, indexOf, type ReadBytes } from "./item-list.ts";
import type { KeptHead } from "./kept-head.ts";
import { type Owners, processOwners } from "./shared/owners.ts";
import type { Deletion, RecentResponses } from "./shared/recent-responses.ts";
import { type RestartHead, Restarts } from "./shared/restarts.ts";
import { sliceOf } from "./spans.ts";

/** Maximum number of responses in one conversation. */
const MAX_HISTORY = 1024;
const MAX_HISTORY_BYTES = 16 * 2 ** 20;
/** Maximum size in bytes of a stored part of a response that is read as a whole. */
const SHORT_PART_BYTES = 64 * 1024;
/**
 * Time in ms for which a tombstone is kept after the end of its response. Within this time, a server may repeat a write whose
 * acknowledgement was lost.
 */
const TOMBSTONE_MS = 10 * 60_000;

/** Time in ms after which all replicas have repeated their deletions on a Redis server that may have lost them. */
const OTHERS_DELETE_MS = 3000;

/** Numbers of responses that were written again, rejected by the store, and dropped earlier because there were too many to remember. */
export interface Restored {
  readonly restored: number;
  readonly failed: number;
  readonly dropped: number;
}

type ChangingPart = "body" | "interrupted" | "output" | "outputIndex" | "events";
type PartName = ChangingPart | "settings" | "input" | "inputIndex" | "request";
type Kept = KeptEntry<KeptHead>;

export class ResponseStore implements StoredResponses {
  readonly #store: Store<KeptHead>;
  readonly #owners: Owners;
  readonly #restarts: Restarts | null;
  readonly #recent: RecentResponses | null;
  /** Number of responses that `restore` had rewritten before it failed. */
  #restored = 0;
  /** Allows one conversation to be read at a time, because each needs up to MAX_HISTORY_BYTES. */
  readonly #histories = new Gate(1);

  /**
   * `index`: ids of the responses that can be restarted; null = no response can (restart_background is off). `recent`: set for a
   * store that may lose acknowledged writes; null for other stores.
   */
  constructor(
    store: Store<KeptHead>,
    owners: Owners = processOwners(),
    index: Store<RestartHead> | null = null,
    recent: RecentResponses | null = null,
  ) {
    this.#store = store;
    this.#recent = recent;
    this.#owners = owners;
    this.#restarts = index === null ? null : new Restarts(store, index, owners);
  }

  async add(response: StoredResponse): Promise<void> {
    await this.#add(response, true);
  }

  /** `replaces`: whether to replace an existing response with the same id. */
  async #add(response: StoredResponse, replaces: boolean): Promise<void> {
    const { id, client, previousId, isBackground, isPublished = false, createdAt, model, inputStart } = response;
    const { settings, input, restart } = response;
    const restarts = this.#restarts === null ? undefined : restart?.count;
    const constant = {
      previousId,
      isBackground,
      isPublished,
      createdAt,
      model,
      inputStart,
      inputCount: input.ids.length,
    };
    const head = { ...constant, ...this.#changingHead(response), ...(restarts === undefined ? {} : { restarts }) };
    const request = restarts === undefined ? null : (restart?.request ?? null);
    const parts = { ...changingParts(response), settings, input: input.texts, inputIndex: indexOf(input), request };
    const entry: Entry<KeptHead> = { head, share: client, parts: presentParts(parts) };
    // The index is written before the response itself, so that no response is missing from the index.
    if (restarts !== undefined) await this.#restarts?.added(id, client);
    for (let version: number | null = null; !(await this.#store.compareAndSet(id, version, entry)); ) {
      if (!replaces) return;
      const kept = await this.#store.get(id);
      if (kept?.head.isDeleted || (kept !== null && this.#isTaken(kept.head))) return;
      version = kept?.version ?? null;
    }
    this.#recent?.added(response);
  }

  async update(update: ResponseUpdate): Promise<UpdateOutcome> {
    const changed = changingParts(update);
    for (;;) {
      const kept = await this.#store.get(update.id);
      if (kept === null) return "evicted";
      if (this.#isTaken(kept.head)) return "taken";
      const { restarts, ...rest } = kept.head;
      const { request: _, ...parts } = kept.parts as Partial<Record<PartName, Part>>;
      const head = { ...rest, ...this.#changingHead(update) };
      const next = kept.head.isDeleted
        ? { ...kept, expiresAt: kept.expiresAt ?? wallTime() + TOMBSTONE_MS }
        : { ...kept, head, parts: presentParts({ ...parts, ...changed }) };
      if (await this.#store.compareAndSet(update.id, kept.version, next)) {
        if (kept.head.isDeleted) this.#recent?.forget(update.id);
        else this.#recent?.updated(update);
        if (restarts !== undefined) await this.#restarts?.ended(update.id);
        return kept.head.isDeleted ? "deleted" : "updated";
      }
    }
  }

  async begin(id: string): Promise<boolean> {
    const isOurs = (await this.#restarts?.begin(id)) ?? true;
    if (isOurs) this.#recent?.begun(id);
    else this.#recent?.forget(id);
    return isOurs;
  }

  async claim({ limit, heldIds }: ClaimRequest): Promise<readonly ClaimedResponse[]> {
    const held = new Set(heldIds);
    // A recent response may have ended here although Redis, which has lost that write, still shows it as claimed; see `restore`.
    const isHeld = (id: string): boolean => held.has(id) || this.#recent?.get(id) !== undefined;
    return (await this.#restarts?.claim(limit, isHeld)) ?? [];
  }

  async giveUp(id: string): Promise<void> {
    await this.#restarts?.giveUp(id);
  }

  async release(id: string): Promise<void> {
    await this.#restarts?.release(id);
  }

  async find(id: string): Promise<FoundResponse | null> {
    const kept = await this.#get(id);
    if (kept === null) return null;
    const { status, isBackground, isPublished = false, firstEvent, owner } = kept.head;
    const settings = spansOf(kept, "settings");
    const interrupted = spansOf(kept, "interrupted");
    return {
      id,
      runner: await this.#runner(kept.head),
      owner,
      status,
      isBackground,
      isPublished,
      body: [...spansOf(kept, "body"), ...settings],
      interrupted: interrupted.length === 0 ? null : [...interrupted, ...settings],
      events: firstEvent === null ? null : { first: firstEvent, spans: spansOf(kept, "events") },
    };
  }

  async list({ after, limit }: Parameters<StoredResponses["list"]>[0]): Promise<ListedPage | null> {
    const last = after === null ? null : await this.#get(after);
    if (after !== null && last === null) return null;
    const found: ListedResponse[] = [];
    let before = after === null || last === null ? null : { born: last.born, key: after };
    do {
      // Other messages of this thread are handled between two pages. A page may be empty, because deleted responses are skipped.
      await nextTurn();
      const { entries, next } = await this.#store.newest({ before, limit: limit + 1 });
      const shown = entries.filter(({ head }) => !head.isDeleted);
      found.push(...(await Promise.all(shown.map((kept) => this.#listed(kept.key, kept)))));
      before = next;
    } while (before !== null && found.length <= limit);
    return { responses: found.slice(0, limit), hasMore: found.length > limit };
  }

  async delete(id: string): Promise<boolean> {
    // Forgotten first, so that `restore` does not rewrite the response during its deletion.
    this.#recent?.forget(id);
    for (;;) {
      const kept = await this.#get(id);
      if (kept === null) return false;
      const tombstone = await this.#tombstone(kept);
      if (!(await this.#store.compareAndSet(id, kept.version, tombstone))) continue;
      this.#recent?.deleted(id, tombstone);
      return true;
    }
  }

  async slice({ spans, at }: SliceRequest): Promise<Uint8Array | null> {
    return await sliceOf(spans, at, (part, from, to) => this.#store.read(part, from, to));
  }

  async page(request: PageRequest): Promise<ItemPage | null> {
    const kept = await this.#get(request.id);
    return kept === null ? null : await this.#list(kept, "input").page(request);
  }

  async item({ id, itemId }: { readonly id: string; readonly itemId: string }): Promise<readonly Span[] | null> {
    const kept = await this.#get(id);
    if (kept === null) return null;
    return (await this.#list(kept, "input").item(itemId)) ?? (await this.#list(kept, "output").item(itemId));
  }

  async history(id: string): Promise<readonly Turn[]> {
    const kept = await this.#get(id);
    if (kept === null) throw missing(id, id);
    return await this.#histories.pass(() => this.#history(id), kept.share);
  }

  /** Pauses the expiry of the recent responses while the store is unreachable, or resumes it. */
  hold(isHeld: boolean): void {
    this.#recent?.hold(isHeld);
  }

  /**
   * Repeats the recent deletions of all replicas, then rewrites the recent responses that the store has lost. Throws
   * storage_unavailable; the caller must then call it again.
   */
  async restore(): Promise<Restored> {
    const recent = this.#recent;
    if (recent === null) return { restored: 0, failed: 0, dropped: 0 };
    for (const id of recent.ids()) {
      const { deletion = null, hasBegun = false } = recent.get(id) ?? {};
      if (deletion !== null) await this.#deleteAgain(id, deletion);
      // Done before the wait below, because another server might claim the response.
      else if (hasBegun) await this.begin(id);
    }
    await sleep(OTHERS_DELETE_MS);
    let failed = 0;
    for (const id of recent.ids()) {
      try {
        if (await this.#restoreOne(id, recent)) this.#restored++;
      } catch (error) {
        if (!(error instanceof ServerError) || error.code === "storage_unavailable") throw error;
        failed++;
      }
    }
    const restored = this.#restored;
    this.#restored = 0;
    return { restored, failed, dropped: recent.droppedCount() };
  }

  /** Rewrites one response if the store has lost it. Returns whether anything was written. */
  async #restoreOne(id: string, recent: RecentResponses): Promise<boolean> {
    const kept = await this.#store.get(id);
    // The recent response may have changed during the read.
    const { record = null, update = null } = recent.get(id) ?? {};
    if (kept === null && record !== null) await this.#add(record, false);
    else if (kept?.head.isRunning && !kept.head.isDeleted && update !== null) await this.update(update);
    else return false;
    return true;
  }

  async sweep(): Promise<void> {
    this.#recent?.expire();
    await this.#store.sweep();
    await this.#restarts?.sweep();
  }

  async onStop(): Promise<void> {
    await this.#store.close();
    await this.#restarts?.close();
  }

  async #deleteAgain(id: string, { tombstone }: Deletion): Promise<void> {
    const kept = await this.#store.get(id);
    if (kept !== null && !kept.head.isDeleted) await this.delete(id);
    else if (kept === null && tombstone !== null) {
      // The outage may have lasted longer than the lifetime of the tombstone, so its expiry starts anew.
      const expiresAt = (tombstone.expiresAt ?? null) === null ? null : wallTime() + TOMBSTONE_MS;
      await this.#store.compareAndSet(id, null, { ...tombstone, expiresAt });
    }
  }

  async #history(id: string): Promise<readonly Turn[]> {
    const turns: Turn[] = [];
    let bytes = 0;
    for (let at: string | null = id; at !== null; ) {
      // A read may take 20 ms, so other messages of this thread are handled before each read.
      await nextTurn();
      const kept: Kept | null = await this.#get(at);
      if (kept === null) throw missing(at, id);
      bytes += bytesOf(kept, "input") + bytesOf(kept, "output");
      if (turns.length >= MAX_HISTORY || bytes > MAX_HISTORY_BYTES) throw tooLong(id);
      turns.push({ id: at, runner: await this.#runner(kept.head), items: await this.#items(kept) });
      at = kept.head.previousId;
    }
    return turns.reverse();
  }

  async #listed(id: string, { head, born }: Kept): Promise<ListedResponse> {
    const { createdAt = Math.floor(born / 1000), model = null, inputStart = null, outputStart = null } = head;
    const { status, isBackground } = head;
    return { id, createdAt, status, isBackground, model, inputStart, outputStart, runner: await this.#runner(head) };
  }

  async #get(id: string): Promise<Kept | null> {
    const kept = await this.#store.get(id);
    return kept === null || kept.head.isDeleted ? null : kept;
  }

  /** Returns the tombstone that replaces a deleted response; null = no tombstone is needed. */
  async #tombstone({ head, share }: Kept): Promise<Entry<KeptHead> | null> {
    const isOwn = head.owner === this.#owners.own;
    // A response that this server has claimed is stored again when its generation begins, so its deletion needs a tombstone.
    const isClaimed = isOwn && head.isRunning && (head.restarts ?? 0) > 0;
    if (!isClaimed && (isOwn || !(await this.#owners.isAlive(head.owner)))) return null;
    const expiresAt = head.isRunning && !isClaimed ? null : wallTime() + TOMBSTONE_MS;
    return { head: { ...head, isDeleted: true }, share, parts: {}, expiresAt };
  }

  #changingHead(update: ResponseUpdate) {
    const { isRunning, status, output, outputStart, events } = update;
    const firstEvent = events?.first ?? null;
    const outputCount = output.ids.length;
    return { isRunning, status, outputCount, outputStart, firstEvent, owner: this.#owners.own, isDeleted: false };
  }

  #list(kept: Kept, which: "input" | "output"): ItemList {
    const { input, inputIndex, output, outputIndex } = kept.parts as Partial<Record<PartName, Part>>;
    const [texts, index] = which === "input" ? [input, inputIndex] : [output, outputIndex];
    const count = which === "input" ? kept.head.inputCount : kept.head.outputCount;
    return new ItemList(count, texts?.id ?? 0, this.#reader(index));
  }

  /** Returns the input items followed by the output items. */
  async #items(kept: Kept): Promise<ItemTexts> {
    const lists = [this.#list(kept, "input"), this.#list(kept, "output")];
    const texts = await Promise.all([this.#whole(kept, "input"), this.#whole(kept, "output")]);
    const ends = new Uint32Array(kept.head.inputCount + kept.head.outputCount);
    let [count, length] = [0, 0];
    for (const [i, list] of lists.entries()) {
      for (const end of await list.ends()) ends[count++] = end + length;
      length += texts[i]?.byteLength ?? 0;
    }
    const ids = await Promise.all(lists.map((list) => list.ids()));
    return { ids: ids.flat(), texts: joinBytes(texts), ends };
  }

  async #whole(kept: Kept, part: PartName): Promise<Uint8Array> {
    return await this.#bytes(kept.parts[part], 0, bytesOf(kept, part));
  }

  /** Returns a reader for a stored part of a response. A short part is read as a whole, because each read may be a network round trip. */
  #reader(part: Part | undefined): ReadBytes {
    if (part === undefined || part.bytes > SHORT_PART_BYTES) return (from, to) => this.#bytes(part, from, to);
    let whole: Promise<Uint8Array> | null = null;
    return async (from, to) => {
      whole ??= this.#bytes(part, 0, part.bytes);
      return (await whole).subarray(from, to);
    };
  }

  /** Returns a byte range of a stored part of a response. The response's entry was read just before. */
  async #bytes(part: Part | undefined, from: number, to: number): Promise<Uint8Array> {
    if (from === to || part === undefined) return new Uint8Array(0);
    const bytes = await this.#store.read(part.id, from, to);
    if (bytes === null) throw new ServerError("storage_unavailable", "a stored response is incomplete; try again");
    return bytes;
  }

  async #runner(head: KeptHead): Promise<Runner | null> {
    if (!head.isRunning) return null;
    // A claimed response that is not running yet must not be shown as one that has ended on this server.
    if (head.owner === this.#owners.own) return (head.restarts ?? 0) > 0 ? "elsewhere" : "here";
    if (this.#restarts?.isWaiting(head)) return "elsewhere";
    return (await this.#owners.isAlive(head.owner)) ? "elsewhere" : "nobody";
  }

  /** Returns whether another server has claimed a response of this server. */
  #isTaken({ owner, isDeleted }: KeptHead): boolean {
    return this.#restarts !== null && owner !== this.#owners.own && !isDeleted;
  }
}

function changingParts({ body, interrupted, output, events }: ResponseUpdate): Record<ChangingPart, Uint8Array | null> {
  const isEmpty = output.ids.length === 0;
  return {
    body,
    interrupted,
    output: isEmpty ? null : output.texts,
    outputIndex: isEmpty ? null : indexOf(output),
    events: events?.text ?? null,
  };
}

/** Returns the parts that are neither null nor empty. */
function presentParts<Content extends Uint8Array | Part>(
  parts: Readonly<Record<string, Content | null>>,
): Record<string, Content> {
  const present = Object.entries(parts).filter((part): part is [string, Content] => {
    const content = part[1];
    return content instanceof Uint8Array ? content.byteLength > 0 : content !== null;
  });
  return Object.fromEntries(present);
}

function spansOf({ parts }: Kept, name: PartName): readonly Span[] {
  const part = parts[name];
  return part === undefined ? [] : [{ part: part.id, from: 0, to: part.bytes }];
}

function bytesOf({ parts }: Kept, name: PartName): number {
  return parts[name]?.bytes ?? 0;
}

function missing(id: string, from: string): ServerError {
  const text =
    id === from
      ? `Response with ID '${id}' not found`
      : `Response with ID '${id}' not found, a predecessor of '${from}': it was deleted or has expired`;
  return new ServerError("not_found", text, { param: "previous_response_id" });
}

function tooLong(id: string): ServerError {
  const text = `'${id}' continues more than ${MAX_HISTORY} responses or ${MAX_HISTORY_BYTES} bytes; send its items as input`;
  return new ServerError("invalid_value", text, { param: "previous_response_id" });
}
