// Owns the nouns of a model's graph: what a layer does, as data. Each architecture is one small file beside this one that
// fills them in; graph.ts finds the tensors, compute-thread.ts runs them. Names are tensors of a layer, without the
// "blk.N." before and the ".weight" behind them.

/** One step of a layer. `norm` makes the input of the step behind it; the other two add their result to the hidden state. */
export type LayerStep =
  | { readonly kind: "norm"; readonly weight: string }
  /** Causal grouped-query attention over the KV cache, query and key rotated. */
  | {
      readonly kind: "attention";
      readonly query: string;
      readonly key: string;
      readonly value: string;
      readonly output: string;
    }
  /** down(silu(gate(x)) * up(x)) */
  | { readonly kind: "feedForward"; readonly gate: string; readonly up: string; readonly down: string };

export interface Architecture {
  /** `general.architecture` of the files it runs. */
  readonly name: string;
  /** Which floats of a head are rotated together: neighbours, or those half a head apart. */
  readonly pairing: "neighbours" | "halves";
  readonly layer: readonly LayerStep[];
}
