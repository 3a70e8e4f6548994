// Owns the KV of sequences that have ended well, kept as copies, so that one which begins with the same tokens (a system
// prompt, the turns of a chat) starts behind them; and the books of whose prompts the running sequences compute. Used by
// the scheduler only. Copies share the KV memory with running sequences and make room for them.
import type { Capabilities, KvCache, LoadedModel, SavedKv } from "../../engine.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { type Match, PrefixIndex } from "./prefix-index.ts";

/** The part of a loaded model that decides about KV memory. */
export type KvModel = Pick<LoadedModel, "capacity" | "capabilities" | "kv">;

/** KV of an ended sequence. */
export interface CachedPrefix {
  readonly adapter: number;
  readonly tokens: Int32Array;
  readonly saved: SavedKv;
}

export interface PrefixStatistics {
  lookups: number;
  hits: number;
  evictions: number;
  /** Prompt tokens that did not have to be computed. */
  reusedTokens: number;
}

export interface PrefixCacheOptions {
  /** Most copies; 0 switches the cache off, and sharing between running sequences with it. */
  readonly limit: number;
  /** Told of each copy that is about to be dropped for want of room. */
  readonly onEvict: ((prefix: CachedPrefix) => void) | null;
}

export class PrefixCache<S extends Sequence> {
  readonly statistics: PrefixStatistics = { lookups: 0, hits: 0, evictions: 0, reusedTokens: 0 };
  readonly #kv: KvCache;
  readonly #capabilities: Capabilities;
  readonly #blockTokens: number;
  readonly #limit: number;
  readonly #onEvict: PrefixCacheOptions["onEvict"];
  readonly #copies = new PrefixIndex<CachedPrefix>();
  /** The one used last at the end. */
  readonly #byUse = new Set<CachedPrefix>();
  readonly #running = new PrefixIndex<S>();

  constructor({ kv, capacity, capabilities }: KvModel, { limit, onEvict }: PrefixCacheOptions) {
    this.#kv = kv;
    this.#capabilities = capabilities;
    this.#blockTokens = capacity.blockTokens;
    this.#limit = limit;
    this.#onEvict = onEvict;
  }

  get size(): number {
    return this.#byUse.size;
  }

  /** Whether dropping copies can make room for so many tokens more. False is certain: blocks may be shared. */
  canMakeRoomFor(tokens: number): boolean {
    let blocks = this.#kv.freeBlocks;
    for (const copy of this.#byUse) blocks += this.#blocksOf(copy.tokens.length);
    return this.#blocksOf(tokens) <= blocks;
  }

  /** Whether two sequences can share what one of them has computed, or is computing. */
  get #sharesRunning(): boolean {
    return this.#limit > 0 && this.#capabilities.copyPrefix;
  }

  get keepsCopies(): boolean {
    return this.#limit > 0 && this.#capabilities.saveState;
  }

  /** A sequence has got a slot: others may wait for its prompt. */
  addRunning(sequence: S): void {
    if (this.#sharesRunning && !sequence.isPooled) this.#running.add(sequence, sequence.promptLength);
  }

  removeRunning(sequence: S): void {
    this.#running.remove(sequence);
  }

  /** The running sequence, of those `isUsable` says yes to, that has most tokens in common with one that starts. */
  findRunning(sequence: S, isUsable: (source: S, length: number) => boolean): Match<S> | null {
    if (this.#running.size === 0) return null;
    return this.#running.longest(sequence, sequence.total - 1, isUsable);
  }

  /** How many of the first tokens of a prompt a copy has; the copy, if any, is now the one used last. */
  findCopy(sequence: Pick<S, "tokens" | "adapter" | "total">): Match<CachedPrefix> | null {
    if (this.#byUse.size === 0) return null;
    const { truncate } = this.#capabilities;
    // The last token is always fed: its logits are what the sequence is here for.
    const found = this.#copies.longest(
      sequence,
      sequence.total - 1,
      (copy, length) => truncate || length === copy.tokens.length,
    );
    if (found !== null) this.#use(found.holder);
    return found;
  }

  /** Counts a sequence that has been looked for, and how many of its prompt's tokens were there. */
  count(sequence: S, reused: number): void {
    if (this.#limit === 0) return;
    this.statistics.lookups++;
    if (reused > 0) this.statistics.hits++;
    this.statistics.reusedTokens += reused;
    sequence.cachedTokens = Math.min(reused, sequence.promptLength);
  }

  /** Keeps a copy of what a sequence that is about to end or to stand still has in its slot. */
  keep({ adapter, tokens, computed, slot, isPooled }: S): void {
    if (!this.keepsCopies || isPooled || computed === 0) return;
    const wanted = { adapter, tokens };
    const related = this.#copies.longest(wanted, computed, (copy, length) => {
      return length === copy.tokens.length || length === computed;
    });
    if (related !== null && related.length === computed) {
      this.#use(related.holder);
      return;
    }
    // What it begins with is part of the new copy.
    if (related !== null) this.#drop(related.holder);
    const saved = this.#makeRoomFor(() => this.#kv.save(slot, computed));
    if (saved !== null) this.#add({ adapter, tokens: tokens.slice(0, computed), saved });
  }

  /** Adds a copy made by an export(). False where there is no room for it. */
  import(adapter: number, tokens: Int32Array, bytes: Uint8Array): boolean {
    if (!this.keepsCopies || !this.canMakeRoomFor(tokens.length)) return false;
    const saved = this.#makeRoomFor(() => this.#kv.import(bytes, tokens.length));
    if (saved !== null) this.#add({ adapter, tokens, saved });
    return saved !== null;
  }

  /** Drops the copy that was not used for longest. False where there is none. */
  evict(): boolean {
    const [oldest] = this.#byUse;
    return this.#evict(oldest);
  }

  /** Drops the copy that was used last. False where there is none. */
  evictLatest(): boolean {
    return this.#evict([...this.#byUse].at(-1));
  }

  /**
   * Drops all copies of an adapter that is being freed. Nobody is told: who takes an adapter away does not come back for
   * its prompts, and writing them all to disk would hold up the sequences of others.
   */
  dropAdapter(adapter: number): void {
    for (const copy of [...this.#byUse]) if (copy.adapter === adapter) this.#drop(copy);
  }

  #evict(copy: CachedPrefix | undefined): boolean {
    if (copy === undefined) return false;
    this.#onEvict?.(copy);
    this.#drop(copy);
    this.statistics.evictions++;
    return true;
  }

  #blocksOf(tokens: number): number {
    return Math.ceil(tokens / this.#blockTokens);
  }

  #add(copy: CachedPrefix): void {
    while (this.#byUse.size >= this.#limit) this.evict();
    this.#copies.add(copy, copy.tokens.length);
    this.#byUse.add(copy);
  }

  #makeRoomFor(make: () => SavedKv | null): SavedKv | null {
    let saved = make();
    while (saved === null && this.evict()) saved = make();
    return saved;
  }

  #use(copy: CachedPrefix): void {
    this.#byUse.delete(copy);
    this.#byUse.add(copy);
  }

  #drop(copy: CachedPrefix): void {
    this.#byUse.delete(copy);
    this.#copies.remove(copy);
    this.#kv.drop(copy.saved);
  }
}
