// Tensor changes that several architectures need, and tables of tensor names that many architectures share.
import type { Config } from "../config.ts";
import { llama3Factors } from "../rope.ts";
import { given, negatedExp, picked, reshaped, shifted, sliced, swapped, transposed } from "../row-changes.ts";
import type { Change, Shaped, TensorTable, TensorTarget } from "./architecture.ts";

/** Adds 1 to the weights of a norm whose checkpoint stores the factor minus one. */
export const plusOne: Change = ({ rows, shape }) => ({ rows: shifted(rows, 1), shape });

export const minusExp: Change = ({ rows, shape }) => ({ rows: negatedExp(rows), shape });

/**
 * Reorders the rows of queries or keys for llama.cpp, whose RoPE rotates neighbouring values: the rows of the two halves of each head are
 * interleaved.
 */
function ropeOrder({ rows, shape }: Shaped, heads: number): Shaped {
  const single = reshaped(rows, shape.length > 1 ? rows.columns : 1);
  const turned = swapped(single, { x: 2, y: single.rows / heads / 2 });
  return { rows: reshaped(turned, rows.columns), shape };
}

export const queryOrder: Change = (tensor, config) => ropeOrder(tensor, config.heads);
export const keyOrder: Change = (tensor, config) => ropeOrder(tensor, config.kvHeads);

/** Returns a change that keeps part `index` of `count` equal parts of each matrix's rows. */
export function part(index: number, count: number): Change {
  return ({ rows, shape }) => {
    const [columns = 1, matrixRows = 1, ...more] = shape;
    const size = matrixRows / count;
    return {
      rows: picked(rows, { period: matrixRows, first: index * size, count: size }),
      shape: [columns, size, ...more],
    };
  };
}

/** Transposes each matrix. */
export const turned: Change = ({ rows, shape }) => {
  const [columns = 1, matrixRows = 1, ...more] = shape;
  return { rows: transposed(rows, matrixRows), shape: [matrixRows, columns, ...more] };
};

export function both(...changes: readonly Change[]): Change {
  return (tensor, config) => changes.reduce((changed, change) => change(changed, config), tensor);
}

/** Puts each value into a row of its own. */
export const column: Change = ({ rows, shape }) => ({ rows: reshaped(rows, 1), shape: [1, shape[0] ?? 1] });

/** Returns a change that splits a vector into rows of equal length, one row per group. */
export function grouped(groups: (config: Config) => number): Change {
  return ({ rows, shape }, config) => {
    const length = (shape[0] ?? 1) / groups(config);
    return { rows: reshaped(rows, length), shape: [length, groups(config)] };
  };
}

/** Removes the dimensions of length 1 that convolution weights have. */
export const squeezed: Change = ({ rows, shape }) => {
  const kept = shape.filter((length) => length !== 1);
  return { rows: reshaped(rows, kept[0] ?? 1), shape: kept };
};

/** Returns a change that drops the rows before row `first`, for position tables that begin with unused rows. */
export function from(first: (config: Config) => number): Change {
  return ({ rows, shape }, config) => {
    const skipped = first(config);
    return { rows: sliced(rows, skipped, rows.rows - skipped), shape: [shape[0] ?? 1, rows.rows - skipped] };
  };
}

/** Returns the targets of a tensor that stacks the gate and up matrices of a feed-forward. */
export function gateAndUp(gate: string, up: string, change: Change = (tensor) => tensor): readonly TensorTarget[] {
  return [
    { to: gate, change: both(change, part(0, 2)) },
    { to: up, change: both(change, part(1, 2)) },
  ];
}

export function vector(name: string, values: readonly number[]): Shaped & { name: string } {
  return { name, rows: given(values), shape: [values.length] };
}

/** Returns the tensor with Llama 3's divisors of the RoPE frequencies; empty if the model has another RoPE. */
export function llama3Tensors(config: Config): readonly (Shaped & { name: string })[] {
  const factors = llama3Factors(config);
  return factors === null ? [] : [vector("rope_freqs.weight", factors)];
}

export const outerTensors: TensorTable = { embed_tokens: "token_embd", norm: "output_norm", lm_head: "output" };

export const attention: TensorTable = {
  "layers.{l}.self_attn.q_proj": "blk.{l}.attn_q",
  "layers.{l}.self_attn.k_proj": "blk.{l}.attn_k",
  "layers.{l}.self_attn.v_proj": "blk.{l}.attn_v",
  "layers.{l}.self_attn.o_proj": "blk.{l}.attn_output",
};

/** Attention tensors whose query and key rows are reordered for llama.cpp (see ropeOrder). */
export const turnedAttention: TensorTable = {
  ...attention,
  "layers.{l}.self_attn.q_proj": { to: "blk.{l}.attn_q", change: queryOrder },
  "layers.{l}.self_attn.k_proj": { to: "blk.{l}.attn_k", change: keyOrder },
};

export const headNorms: TensorTable = {
  "layers.{l}.self_attn.q_norm": "blk.{l}.attn_q_norm",
  "layers.{l}.self_attn.k_norm": "blk.{l}.attn_k_norm",
};

export const feedForward: TensorTable = {
  "layers.{l}.mlp.gate_proj": "blk.{l}.ffn_gate",
  "layers.{l}.mlp.up_proj": "blk.{l}.ffn_up",
  "layers.{l}.mlp.down_proj": "blk.{l}.ffn_down",
};

/** Norms before attention and before the feed-forward. */
export const preNorms: TensorTable = {
  "layers.{l}.input_layernorm": "blk.{l}.attn_norm",
  "layers.{l}.post_attention_layernorm": "blk.{l}.ffn_norm",
};

/** Tensors of experts: one matrix per expert, or one tensor with the gate and up matrices of all experts. */
export const experts: TensorTable = {
  "layers.{l}.mlp.gate": "blk.{l}.ffn_gate_inp",
  "layers.{l}.mlp.experts.{e}.gate_proj": "blk.{l}.ffn_gate_exps",
  "layers.{l}.mlp.experts.{e}.up_proj": "blk.{l}.ffn_up_exps",
  "layers.{l}.mlp.experts.{e}.down_proj": "blk.{l}.ffn_down_exps",
  "layers.{l}.mlp.experts.gate_up_proj": gateAndUp("blk.{l}.ffn_gate_exps", "blk.{l}.ffn_up_exps"),
  "layers.{l}.mlp.experts.down_proj": "blk.{l}.ffn_down_exps",
};
