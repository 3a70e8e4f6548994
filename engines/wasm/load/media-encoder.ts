// Media encoder: runs the encoder of a projector file on its own group of compute threads. The calling thread is the leader of the group.
// This class loads the weights and runs the passes; ImageEncoder and AudioEncoder write the input rows.
import type { TensorTable } from "../../files/gguf/tensors.ts";
import type { MediaGraph } from "../graph/media-graph.ts";
import { Passes } from "../pass/passes.ts";
import { divideGraph, type PartitionPlan } from "../plan/partition-plan.ts";
import type { PassDescriptor } from "../plan/pass-descriptor.ts";
import type { ComputeThread } from "../threads/compute-thread.ts";
import { HelperThread } from "../threads/helper-thread.ts";
import { allocateShared } from "../threads/shared-blocks.ts";
import { layOut } from "../threads/thread-memory.ts";
import { tensorBytes } from "./fit.ts";
import { createMemory, instantiateKernels, loadKernels } from "./kernel-module.ts";
import { loadThreads } from "./load-threads.ts";

/** KV type F32. A smaller type is not needed, because keys and values are discarded after their layer. */
const kvType = 0;
const blockTokens = 32;

export class MediaEncoder {
  readonly #threads: number;
  readonly #leader: ComputeThread;
  readonly #passes: Passes;

  private constructor(leader: ComputeThread, helpers: readonly HelperThread[]) {
    this.#threads = helpers.length + 1;
    this.#leader = leader;
    this.#passes = new Passes(leader, helpers, null);
  }

  /** Loads an encoder's weights from the files of `table`, and starts its threads. Throws `model_file_invalid`. */
  static async load(
    table: TensorTable,
    { graph, shape, tokens, rows, inputFloats }: MediaGraph,
    threads: number,
  ): Promise<MediaEncoder> {
    const helpers = Array.from({ length: threads - 1 }, () => new HelperThread());
    try {
      const kernels = await loadKernels();
      const blocks = Math.ceil(tokens / blockTokens);
      const plan: PartitionPlan = {
        files: table.files,
        ...{ graph, shape, threads, blockTokens, kvType, inputFloats },
        passTokens: tokens,
        maxRows: rows,
        maxOutputs: 0,
        pagesPerThread: Math.ceil(blocks / threads),
        blocksPerSequence: blocks,
        adapterRank: 0,
        mixture: null,
      };
      // Throws for sizes that no thread's memory can have, before anything is allocated.
      layOut(plan, divideGraph(plan), instantiateKernels(kernels, createMemory(1)), 0);
      const shared = allocateShared(plan, 0, null);
      const { leader } = await loadThreads(plan, kernels, shared, helpers, tensorBytes(table), () => undefined);
      return new MediaEncoder(leader, helpers);
    } catch (error) {
      await Promise.all(helpers.map((helper) => helper.terminate()));
      throw error;
    }
  }

  /** Input rows of the tokens of a pass, shape [tokens][MediaGraph.inputFloats]. */
  get inputRows(): Float32Array {
    return this.#leader.inputRows;
  }

  /** Clears the pass descriptor and returns it. Throws if no pass can run. */
  beginPass(): PassDescriptor {
    this.#passes.checkUsable();
    const { pass } = this.#leader;
    pass.clear();
    return pass;
  }

  /**
   * Adds a row (a sequence) with the next `tokens` tokens to the pass. All rows use the same KV pages, because rows are computed one after
   * another.
   */
  addRow(tokens: number): void {
    const { pass } = this.#leader;
    const blocks = Math.ceil(tokens / blockTokens);
    const firstPage = pass.addRow(tokens, 0, blocks);
    for (let block = 0; block < blocks; block++) pass.pages[firstPage + block] = Math.floor(block / this.#threads);
    pass.tokenCount += tokens;
  }

  /** Runs the pass and returns the embeddings. The next pass overwrites them. */
  run(): Float32Array {
    try {
      this.#passes.run();
    } catch (error) {
      throw this.#passes.fail(error);
    }
    return this.#leader.mediaEmbeddings;
  }

  dispose(): void {
    this.#passes.dispose();
  }
}
