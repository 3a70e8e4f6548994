// Conformer pass: the start and the end of a pass of a conformer, on one compute thread. At the end, the hidden states become embeddings as
// wide as those of the text model.

import { multiplyJoined, type StepParts } from "../../pass/step-runner.ts";
import type { DividedGraph } from "../../plan/partition-plan.ts";
import type { PassDescriptor } from "../../plan/pass-descriptor.ts";
import type { ConformerOuterLayers } from "./steps.ts";
import { SubsamplingPass } from "./subsampling-pass.ts";

export interface ConformerParts extends StepParts {
  readonly pass: PassDescriptor;
  readonly conformer: ConformerOuterLayers;
  readonly divided: Pick<DividedGraph, "embedding" | "projector">;
  /** `floats`: view of the thread's memory. `inputRows`: input rows, shared by all threads. */
  readonly floats: Float32Array;
  readonly inputRows: Float32Array;
}

export class ConformerPass {
  readonly #parts: ConformerParts;
  /** Computes the first hidden states; null if they are the input rows. */
  readonly #subsampling: SubsamplingPass | null;

  constructor(parts: ConformerParts) {
    this.#parts = parts;
    const { subsampling } = parts.conformer;
    this.#subsampling = subsampling && new SubsamplingPass({ ...parts, subsampling });
  }

  /** Computes the hidden states of n positions from the input rows. */
  embed(n: number): void {
    const { at, floats, plan, inputRows } = this.#parts;
    if (this.#subsampling) this.#subsampling.embed(n);
    else floats.set(inputRows.subarray(0, n * plan.shape.width), at.hidden >>> 2);
  }

  /** Computes the embeddings from the hidden states after the last layer. Returns their address and number. */
  project(): { readonly address: number; readonly count: number } {
    const { at, divided, kernels, plan, pass, conformer } = this.#parts;
    const { output, embedderNorm, embedder } = conformer;
    const { width, epsilon } = plan.shape;
    const count = pass.tokenCount;
    // The order of the matrices is that of projectorMatrices().
    const [outputShares, embedderShares] = [divided.projector.at(-2) ?? [], divided.projector.at(-1) ?? []];
    let x = at.hidden;
    if (output) {
      multiplyJoined(this.#parts, outputShares, { x, columns: width, n: count }, null);
      x = at.joined;
    }
    const { columns } = embedder;
    const weight = embedderNorm === null ? 0 : (at.weights.get(embedderNorm.name) as number);
    kernels.rmsNorm(x, columns, weight, x, columns, count, columns, epsilon);
    multiplyJoined(this.#parts, embedderShares, { x, columns, n: count }, null);
    return { address: at.joined, count };
  }

  /** Returns a view of the embeddings that project() has computed. */
  embeddings({ address, count }: ReturnType<ConformerPass["project"]>): Float32Array {
    const { floats, conformer } = this.#parts;
    return floats.subarray(address >>> 2, (address >>> 2) + count * conformer.length);
  }
}
