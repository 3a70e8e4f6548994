// Prefix cache: the KV of ended sequences, kept as copies for sequences with the same prefix (a system prompt, the turns of
// a chat), and an index of the prompts that running sequences compute. Copies share the KV memory with running sequences
// and are evicted to make room for them.
import type { Capabilities, KvCache, LoadedModel, SavedKv } from "../../engine.ts";
import type { Sequence } from "../scheduler/sequence.ts";
import { type Match, PrefixIndex } from "./prefix-index.ts";

/** The parts of a loaded model that KV memory depends on. */
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
  /** Prompt tokens found in the cache. */
  reusedTokens: number;
}

export interface PrefixCacheOptions {
  /** Most copies; 0 = none, and running sequences share nothing either. */
  readonly limit: number;
  /** Told of each copy that is about to be evicted. */
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
  /** The latest used last. */
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

  /** Whether evicting copies can make room for `tokens` more tokens. Only false is certain: blocks may be shared. */
  canMakeRoomFor(tokens: number): boolean {
    let blocks = this.#kv.freeBlocks;
    for (const copy of this.#byUse) blocks += this.#blocksOf(copy.tokens.length);
    return this.#blocksOf(tokens) <= blocks;
  }

  /** Whether running sequences can share KV, or wait for each other's. */
  get #sharesRunning(): boolean {
    return this.#limit > 0 && this.#capabilities.copyPrefix;
  }

  get keepsCopies(): boolean {
    return this.#limit > 0 && this.#capabilities.saveState;
  }

  /** Makes the prompt of a sequence that has got a slot known to others. */
  addRunning(sequence: S): void {
    if (this.#sharesRunning && !sequence.isPooled) this.#running.add(sequence, sequence.promptLength);
  }

  removeRunning(sequence: S): void {
    this.#running.remove(sequence);
  }

  /** The usable running sequence with the longest prefix in common with one that starts; null: none. */
  findRunning(sequence: S, isUsable: (source: S, length: number) => boolean): Match<S> | null {
    if (this.#running.size === 0) return null;
    return this.#running.longest(sequence, sequence.total - 1, isUsable);
  }

  /** The copy with the longest prefix of a prompt, now the latest used; null: none. */
  findCopy(sequence: Pick<S, "tokens" | "adapter" | "total">): Match<CachedPrefix> | null {
    if (this.#byUse.size === 0) return null;
    const { truncate } = this.#capabilities;
    // The last token is always fed: its logits give the next token.
    const found = this.#copies.longest(
      sequence,
      sequence.total - 1,
      (copy, length) => truncate || length === copy.tokens.length,
    );
    if (found !== null) this.#use(found.holder);
    return found;
  }

  /** Counts a lookup that found `reused` tokens of a sequence. */
  count(sequence: S, reused: number): void {
    if (this.#limit === 0) return;
    this.statistics.lookups++;
    if (reused > 0) this.statistics.hits++;
    this.statistics.reusedTokens += reused;
    sequence.cachedTokens = Math.min(reused, sequence.promptLength);
  }

  /** Copies the KV of a sequence that is about to lose its slot, unless a copy has it already. */
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
    // The new copy includes the related one, a prefix of it.
    if (related !== null) this.#drop(related.holder);
    const saved = this.#makeRoomFor(() => this.#kv.save(slot, computed));
    if (saved !== null) this.#add({ adapter, tokens: tokens.slice(0, computed), saved });
  }

  /** Adds a copy made by an export() of a model like this one. False if there is no room for it. */
  import(adapter: number, tokens: Int32Array, bytes: Uint8Array): boolean {
    if (!this.keepsCopies || !this.canMakeRoomFor(tokens.length)) return false;
    const saved = this.#makeRoomFor(() => this.#kv.import(bytes, tokens.length));
    if (saved !== null) this.#add({ adapter, tokens, saved });
    return saved !== null;
  }

  /** Evicts the least recently used copy. False if there is none. */
  evict(): boolean {
    const [oldest] = this.#byUse;
    return this.#evict(oldest);
  }

  /** Evicts the most recently used copy. False if there is none. */
  evictLatest(): boolean {
    return this.#evict([...this.#byUse].at(-1));
  }

  /**
   * Drops all copies of an adapter that is being freed, without onEvict: its prompts will not come back, and writing all of
   * them to disk would delay other sequences.
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
