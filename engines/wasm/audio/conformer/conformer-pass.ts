// Conformer pass: the start and the end of a pass of a conformer, on one compute thread. At the end, the hidden states become embeddings as
// wide as those of the text model.

import { normRows } from "../../pass/projector-norm.ts";
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
    const { at, divided, plan, pass, conformer } = this.#parts;
    const { projector } = conformer;
    const count = pass.tokenCount;
    // The matrices of the projector are the last ones, in the order of projectorMatrices().
    let matrix = divided.projector.length - projector.filter(({ kind }) => kind === "matrix").length;
    let [x, columns] = [at.hidden, plan.shape.width];
    for (const step of projector) {
      if (step.kind === "norm") {
        normRows(this.#parts, step, { x, out: x, columns, count });
        continue;
      }
      multiplyJoined(this.#parts, divided.projector[matrix++] ?? [], { x, columns, n: count }, step.activation);
      x = at.joined;
      columns = step.matrix.rows;
    }
    return { address: x, count };
  }

  /** Returns a view of the embeddings that project() has computed. */
  embeddings({ address, count }: ReturnType<ConformerPass["project"]>): Float32Array {
    const { floats, conformer } = this.#parts;
    return floats.subarray(address >>> 2, (address >>> 2) + count * conformer.length);
  }
}
