// Prefix cache: keeps copies of the KV of ended sequences, so that later sequences with the same prefix (a system
// prompt, the turns of a chat) can reuse it. Also indexes the prompts of running sequences, whose KV can be shared.
// Copies use the same KV memory as running sequences and are evicted to make room for them.
import type { Capabilities, KvCache, LoadedModel, SavedKv } from "../../engine.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { type Match, PrefixIndex } from "./prefix-index.ts";

/** The properties of a loaded model that KV memory depends on. */
export type KvModel = Pick<LoadedModel, "capacity" | "capabilities" | "kv">;

/** A copy of the KV of an ended sequence. */
export interface CachedPrefix {
  readonly adapter: number;
  readonly tokens: Int32Array;
  readonly saved: SavedKv;
}

export interface PrefixStatistics {
  lookups: number;
  hits: number;
  evictions: number;
  /** Number of prompt tokens found in the cache. */
  reusedTokens: number;
}

export interface PrefixCacheOptions {
  /** Maximum number of copies. 0: no copies, and running sequences do not share KV either. */
  readonly limit: number;
  /** Called with each copy that is about to be evicted. */
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
  /** Copies, least recently used first. */
  readonly #byUse = new Set<CachedPrefix>();
  readonly #running = new PrefixIndex<S>();

  constructor({ kv, capacity, capabilities }: KvModel, { limit, onEvict }: PrefixCacheOptions) {
    this.#kv = kv;
    this.#capabilities = capabilities;
    this.#blockTokens = capacity.blockTokens;
    this.#limit = limit;
    this.#onEvict = onEvict;
  }

  /**
   * Whether evicting copies may make room for `tokens` more tokens. A result of false is certain. After a result of
   * true, the room may still be too small, because copies may share blocks with running sequences.
   */
  canMakeRoomFor(tokens: number): boolean {
    let blocks = this.#kv.freeBlocks;
    for (const copy of this.#byUse) blocks += this.#blocksOf(copy.tokens.length);
    return this.#blocksOf(tokens) <= blocks;
  }

  /**
   * Whether running sequences may share KV with each other, and may wait until another sequence has computed a shared
   * prefix.
   */
  get #sharesRunning(): boolean {
    return this.#limit > 0 && this.#capabilities.copyPrefix;
  }

  /** Whether the model can reuse part of a copy. If not, it can only reuse the whole copy. */
  get canTruncate(): boolean {
    return this.#capabilities.truncate;
  }

  get keepsCopies(): boolean {
    return this.#limit > 0 && this.#capabilities.saveState;
  }

  /** Adds the prompt of a sequence that has got a slot to the index of running prompts. */
  addRunning(sequence: S): void {
    if (this.#sharesRunning && !sequence.isPooled) this.#running.add(sequence, sequence.promptLength);
  }

  removeRunning(sequence: S): void {
    this.#running.remove(sequence);
  }

  /** Returns the usable running sequence with the longest common prefix with `sequence`; null: none. */
  findRunning(sequence: S, isUsable: (source: S, length: number) => boolean): Match<S> | null {
    if (this.#running.size === 0) return null;
    return this.#running.longest(sequence, sequence.total - 1, isUsable);
  }

  /**
   * Returns the copy with the longest common prefix with a prompt, and marks it as the most recently used; null: none.
   */
  findCopy(sequence: Pick<S, "tokens" | "adapter" | "total">): Match<CachedPrefix> | null {
    if (this.#byUse.size === 0) return null;
    // The last token must always be computed, because its logits determine the next token.
    const found = this.#copies.longest(
      sequence,
      sequence.total - 1,
      (copy, length) => this.canTruncate || length === copy.tokens.length,
    );
    if (found !== null) this.#use(found.holder);
    return found;
  }

  /** Counts a cache lookup that found `reused` tokens of a sequence. */
  count(sequence: S, reused: number): void {
    if (this.#limit === 0) return;
    this.statistics.lookups++;
    if (reused > 0) this.statistics.hits++;
    this.statistics.reusedTokens += reused;
    sequence.cachedTokens = Math.min(reused, sequence.promptLength);
  }

  /** Copies the KV of a sequence that is about to lose its slot, unless a copy already contains it. */
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
    // The related copy is a prefix of the new copy, so it is no longer needed.
    if (related !== null) this.#drop(related.holder);
    const saved = this.#makeRoomFor(() => this.#kv.save(slot, computed));
    if (saved !== null) this.#add({ adapter, tokens: tokens.slice(0, computed), saved });
  }

  /**
   * Adds a copy from bytes that KvCache.export() returned for an identical model. Returns false if there is no room for
   * it.
   */
  import(adapter: number, tokens: Int32Array, bytes: Uint8Array): boolean {
    if (!this.keepsCopies || !this.canMakeRoomFor(tokens.length)) return false;
    const saved = this.#makeRoomFor(() => this.#kv.import(bytes, tokens.length));
    if (saved !== null) this.#add({ adapter, tokens, saved });
    return saved !== null;
  }

  /** Evicts the least recently used copy. Returns false if there is none. */
  evict(): boolean {
    const [oldest] = this.#byUse;
    return this.#evict(oldest);
  }

  /** Evicts the most recently used copy. Returns false if there is none. */
  evictLatest(): boolean {
    return this.#evict([...this.#byUse].at(-1));
  }

  /**
   * Drops all copies of an adapter that is being unloaded. Does not call onEvict, because no later prompt can use these
   * copies, and writing them to disk would delay other sequences.
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
