// Adapter host: the loaded adapters of a model and their addresses in the memories of the compute threads. It runs on
// the leader (compute thread 0), which enlarges the memories. The loader thread reads and packs the adapters. A pass
// descriptor (the shared block that tells all compute threads what a pass computes) refers to an adapter by its
// address, so the compute threads need no messages about adapters.
import assert from "node:assert/strict";
import { type ErrorCode, ServerError } from "../../../runtime/errors.ts";
import type { AdapterHost } from "../../engine.ts";
import type { KernelMemory } from "../load/kernel-module.ts";
import type { PartitionPlan } from "../plan/partition-plan.ts";
import { AdapterArena } from "./arena.ts";
import { AdapterLoader } from "./loader.ts";

const wasmPageBytes = 65_536;
const longestMemoryBytes = 65_536 * wasmPageBytes;

interface Loaded {
  readonly address: number;
  readonly blockBytes: number;
  readonly tensorBytes: number;
}

export class WasmAdapters implements AdapterHost {
  readonly #memories: readonly KernelMemory[];
  readonly #maxBytes: number;
  readonly #arena: AdapterArena;
  readonly #loader: AdapterLoader;
  readonly #loaded = new Map<number, Loaded>();
  /** Adapter that is being loaded, whose memory is already allocated; null = none. */
  #coming: Loaded | null = null;
  /** Bytes of the tensors in the prepared files of all adapters that are loaded or being loaded. */
  #tensorBytes = 0;
  /**
   * Promise of the previous load, settled when that load ends. The next load waits for it, so loads run one at a time.
   */
  #turn: Promise<unknown> = Promise.resolve();
  #disposed = false;

  /** `memories`: the memories of the compute threads, by thread number, before any adapter is loaded. */
  constructor(plan: PartitionPlan, memories: readonly KernelMemory[], maxBytes: number) {
    const longest = Math.max(...memories.map(({ buffer }) => buffer.byteLength));
    this.#memories = memories;
    this.#maxBytes = maxBytes;
    this.#arena = new AdapterArena(longest, longestMemoryBytes);
    this.#loader = new AdapterLoader(plan);
  }

  /** Number of bytes that adapters occupy in each thread's memory. */
  get usedBytes(): number {
    return this.#arena.usedBytes;
  }

  /** Throws if the total byte counts differ from the sums over all adapters. */
  checkIntegrity(): void {
    this.#arena.checkIntegrity();
    const loaded = [...this.#loaded.values(), ...(this.#coming ? [this.#coming] : [])];
    const blockBytes = loaded.reduce((sum, adapter) => sum + adapter.blockBytes, 0);
    assert.equal(this.#arena.usedBytes, blockBytes, "bytes of a thread's memory are lost");
    const tensorBytes = loaded.reduce((sum, adapter) => sum + adapter.tensorBytes, 0);
    assert.equal(this.#tensorBytes, tensorBytes, "bytes of adapters are lost");
  }

  /** Returns the address by which pass descriptors refer to an adapter; undefined if the adapter is not loaded. */
  addressOf(id: number): number | undefined {
    return this.#loaded.get(id)?.address;
  }

  load(id: number, path: string): Promise<void> {
    return this.loadStacked(id, [path]);
  }

  /**
   * Loads several prepared adapters, stacked into one adapter: its ranks are the ranks of all files, in the order of
   * `paths`.
   */
  async loadStacked(id: number, paths: readonly string[]): Promise<void> {
    assert.ok(id > 0 && !this.#loaded.has(id), `adapter id ${id} must be positive and unused`);
    const loading = this.#turn.then(() => this.#load(id, paths));
    this.#turn = loading.catch(() => undefined);
    await loading;
  }

  unload(id: number): void {
    const found = this.#loaded.get(id);
    if (!found) return;
    this.#loaded.delete(id);
    this.#give(found);
  }

  dispose(): void {
    this.#disposed = true;
    this.#loader.dispose();
  }

  async #load(id: number, paths: readonly string[]): Promise<void> {
    if (this.#disposed) throw new ServerError("lora_device_load_failed", "the adapter's model was unloaded");
    const { blockBytes, tensorBytes } = await this.#loader.measure(paths);
    const taken = this.#take(blockBytes, tensorBytes);
    this.#coming = taken;
    try {
      this.#lengthenMemories(taken.address + blockBytes);
      await this.#loader.pack(this.#memories.map(({ buffer }) => ({ memory: buffer, address: taken.address })));
    } catch (error) {
      this.#give(taken);
      throw error;
    } finally {
      this.#coming = null;
    }
    this.#loaded.set(id, taken);
  }

  #take(blockBytes: number, tensorBytes: number): Loaded {
    const left = this.#maxBytes - this.#tensorBytes;
    if (tensorBytes > left) throw noRoom(tensorBytes, `${mib(left)} of ${mib(this.#maxBytes)} are left for adapters`);
    const address = this.#arena.take(blockBytes);
    if (address === null) {
      const free = mib(this.#arena.longestFree);
      const reason = `the memory of a compute thread has ${free} left: lower kv_cache, or raise threads`;
      throw noRoom(blockBytes, reason, { code: "lora_slot_space_exhausted" });
    }
    this.#tensorBytes += tensorBytes;
    return { address, blockBytes, tensorBytes };
  }

  #give({ address, blockBytes, tensorBytes }: Loaded): void {
    this.#arena.give(address, blockBytes);
    this.#tensorBytes -= tensorBytes;
  }

  /** Enlarges the memories to at least `bytes` bytes. Existing views of the memories keep their length and content. */
  #lengthenMemories(bytes: number): void {
    for (const memory of this.#memories) {
      const missing = Math.ceil((bytes - memory.buffer.byteLength) / wasmPageBytes);
      if (missing <= 0) continue;
      try {
        memory.grow(missing);
      } catch (cause) {
        throw noRoom(bytes, "the system cannot grow a compute thread's memory", { cause });
      }
    }
  }
}

interface RoomError {
  readonly code?: ErrorCode;
  readonly cause?: unknown;
}

function noRoom(bytes: number, reason: string, more: RoomError = {}): ServerError {
  const { code = "lora_device_load_failed", cause } = more;
  const message = `there is no room for the adapter's ${mib(bytes)}: ${reason}; unload others first`;
  return new ServerError(code, message, { cause });
}

function mib(bytes: number): string {
  return `${(bytes / 2 ** 20).toFixed(1)} MiB`;
}
