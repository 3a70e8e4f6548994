// Pooling of a model: how the hidden states of a sequence become one vector, and the scoring head (rerankers). Plain
// data, part of the graph, built once per load. pass/pooler.ts computes the pooled outputs.
import { ServerError } from "../../../runtime/errors.ts";
import type { Pooling } from "../../engine.ts";
import type { Architecture, ScoringRules } from "./architectures/architecture.ts";
import type { GraphTensors, Matrix, Norm } from "./graph-tensors.ts";
import type { Keys } from "./keys.ts";
import type { Hyperparameters } from "./shape.ts";

export interface GraphPooling {
  /** Kind of pooling; null if the model has no pooled outputs. */
  readonly kind: Pooling | null;
  /** Number of floats in a pooled output. */
  readonly length: number;
  /** Matrices by which the pooled hidden state is multiplied, in order. */
  readonly dense: readonly Matrix[];
  /** Scoring head; null unless the pooling kind is rank. */
  readonly head: ScoringHead | null;
}

/** Scoring head: output(norm(activation(dense(x)))). Each part may be missing. */
export interface ScoringHead extends ScoringRules {
  readonly dense: Matrix | null;
  readonly norm: Norm | null;
  readonly output: Matrix | null;
}

/** Pooling kinds by the value of the file's key pooling_type. If the key is absent or 0, the kind is mean. */
const kinds: ReadonlyMap<unknown, Pooling> = new Map([
  [undefined, "mean"],
  [0, "mean"],
  [1, "mean"],
  [2, "cls"],
  [3, "last"],
  [4, "rank"],
]);
const longestDense = 65_536;
const headNames = ["cls", "cls.norm", "cls.output"];

/**
 * Reads the pooling kind and finds the tensors of the scoring head. Throws `model_file_invalid` or `unsupported` naming
 * the key or the tensor.
 */
export function readPooling(
  architecture: Architecture,
  { width }: Hyperparameters,
  keys: Keys,
  tensors: GraphTensors,
): GraphPooling {
  const kind = kinds.get(keys.value("pooling_type"));
  if (kind === undefined) throw keys.unsupported("pooling_type", "0 to 4");
  if (kind === "rank") return readScoring(architecture, width, keys, tensors);
  if (architecture.scoring) for (const name of headNames) tensors.leaveOut(name);
  // Pooling kind cls uses the first token. With causal attention, the first token attends to no other token. Its hidden
  // state does not depend on the rest of the text, so the model has no pooled outputs.
  const isBlind = kind === "cls" && !architecture.isEncoder;
  if (isBlind) return { kind: null, length: 0, dense: [], head: null };
  const dense = architecture.encoder?.takesDenseLayers ? readDense(width, keys, tensors) : [];
  return { kind, length: dense.at(-1)?.rows ?? width, dense, head: null };
}

/** Finds the dense layers of EmbeddingGemma; none if the file was converted without them. */
function readDense(width: number, keys: Keys, tensors: GraphTensors): Matrix[] {
  if (!tensors.has("dense_2") && !tensors.has("dense_3")) return [];
  const inner = keys.count("dense_2_feat_out", longestDense);
  keys.mustBe("dense_2_feat_in", width);
  keys.mustBe("dense_3_feat_in", inner);
  keys.mustBe("dense_3_feat_out", width);
  return [tensors.matrix("dense_2", inner, width), tensors.matrix("dense_3", width, inner)];
}

function readScoring(
  { scoring, isEncoder }: Architecture,
  width: number,
  keys: Keys,
  tensors: GraphTensors,
): GraphPooling {
  if (!scoring) throw keys.unsupported("pooling_type", "scores (4) of other architectures only");
  const labels = keys.value("classifier.output_labels");
  const scores = Array.isArray(labels) && labels.length > 0 ? labels.length : 1;
  if (scores > width) throw keys.unsupported("classifier.output_labels", `no more than ${width} of them here`);
  const find = (name: string, rows: number) => (tensors.has(name) ? tensors.matrix(name, rows, width) : null);
  const dense = isEncoder ? find("cls", width) : null;
  const norm = dense !== null && tensors.has("cls.norm") ? tensors.norm("cls.norm", true, [width]) : null;
  const output = find("cls.output", scores);
  if (dense === null && output === null) {
    throw new ServerError(
      "unsupported",
      "the model pools by rank, but has no tensor cls.output.weight for scores: use --engine llama for its other uses",
      { param: "engine" },
    );
  }
  return { kind: "rank", length: scores, dense: [], head: { ...scoring, dense, norm, output } };
}
