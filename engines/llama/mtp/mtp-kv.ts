// MTP KV: the KV cache of a model with MTP. It applies each operation to the model's context and to the MTP context.
// Exported copies do not contain the keys and values of the MTP context.
import type { SavedKv } from "../../engine.ts";
import { UnifiedKv, type UnifiedOptions } from "../kv/kv-unified.ts";
import type { NativeContext } from "../native/native-context.ts";
import type { HeadsFeeder } from "./mtp-feeder.ts";

/** Part of a saved copy that is in the MTP context. */
interface MtpCopy {
  readonly id: number;
  readonly tokens: number;
}

export class HeadedKv extends UnifiedKv {
  readonly #heads: HeadsFeeder;
  readonly #copies = new Map<SavedKv, MtpCopy>();
  /** Native sequences of the MTP context that belong to no slot; used for copies. */
  readonly #spareIds: number[] = [];

  constructor(context: NativeContext, options: UnifiedOptions, heads: HeadsFeeder) {
    super(context, options);
    this.#heads = heads;
    for (let id = options.capacity.maxSequences; id < options.maxSequenceIds; id++) this.#spareIds.push(id);
  }

  override release(slot: number): void {
    super.release(slot);
    this.#heads.release(slot);
  }

  override copyPrefix(from: number, to: number, tokens: number): void {
    super.copyPrefix(from, to, tokens);
    this.#heads.copyPrefix(from, to, tokens);
  }

  override save(slot: number, kept?: number): SavedKv | null {
    const saved = super.save(slot, kept);
    const id = saved === null ? undefined : this.#spareIds.pop();
    if (saved === null || id === undefined) return saved;
    const tokens = this.#heads.save(slot, id);
    if (tokens > 0) this.#copies.set(saved, { id, tokens });
    else this.#spareIds.push(id);
    return saved;
  }

  override drop(saved: SavedKv): void {
    super.drop(saved);
    const copy = this.#copies.get(saved);
    if (copy === undefined) return;
    this.#copies.delete(saved);
    this.#heads.drop(copy.id);
    this.#spareIds.push(copy.id);
  }

  override restore(slot: number, saved: SavedKv, tokens: number): void {
    super.restore(slot, saved, tokens);
    const copy = this.#copies.get(saved);
    if (copy === undefined) this.#heads.release(slot);
    else this.#heads.restore(slot, copy.id, copy.tokens, tokens);
  }
}
