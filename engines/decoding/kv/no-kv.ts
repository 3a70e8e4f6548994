// NoKv: implementation of the KV cache interface for encoders, which keep nothing between steps. There is always room
// for a sequence, up to the maximum sequence length.
import assert from "node:assert/strict";
import type { Capacity, KvCache, SavedKv } from "../../engine.ts";

export class NoKv implements KvCache {
  readonly freeBlocks: number;
  readonly layout = "none";
  readonly #sequenceTokens: number;

  constructor({ kvBlocks, sequenceTokens }: Capacity) {
    this.freeBlocks = kvBlocks;
    this.#sequenceTokens = sequenceTokens;
  }

  reserve(_slot: number, tokens: number): boolean {
    return tokens <= this.#sequenceTokens;
  }

  release(): void {}

  copyPrefix(): void {
    assert.fail("an encoder has no KV cache");
  }

  save(): SavedKv | null {
    return null;
  }

  drop(): void {}

  restore(): void {
    assert.fail("an encoder has no KV cache");
  }

  export(): Uint8Array {
    assert.fail("an encoder has no KV cache");
  }

  import(): SavedKv | null {
    return null;
  }
}
