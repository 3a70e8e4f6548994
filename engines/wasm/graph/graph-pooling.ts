// Pooling of a model: how the hidden states of a sequence become one vector, and the scoring head (rerankers). Plain
// data, part of the graph, built once per load. pass/pooler.ts computes the pooled outputs.
import { ServerError } from "../../../runtime/errors.ts";
import type { Pooling } from "../../engine.ts";
import { multiVectorKey, parseMultiVector } from "../../files/embedding-rules.ts";
import { maskTokenKey, type TensorTable } from "../../files/gguf/tensors.ts";
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
  /** Token to which no token attends; queries of ColBERT models are padded with it. Null or absent = none. */
  readonly unattendedToken?: number | null;
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
  shape: Hyperparameters,
  keys: Keys,
  tensors: GraphTensors,
  fields: TensorTable["fields"],
): GraphPooling {
  const multiVector = fields.get(multiVectorKey);
  if (multiVector !== undefined) return readTokenVectors(architecture, shape, tensors, fields);
  const { width } = shape;
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

/**
 * Returns the pooling of a ColBERT model: the matrix that projects each token's hidden state, and the token to which no
 * token attends.
 */
function readTokenVectors(
  { isEncoder }: Architecture,
  { width, alibi }: Hyperparameters,
  tensors: GraphTensors,
  fields: TensorTable["fields"],
): GraphPooling {
  if (!isEncoder) throw noTokenVectors("a model with causal attention");
  const rules = parseMultiVector("the model's file", String(fields.get(multiVectorKey)));
  const hides = rules.queryTokens > 0 && !rules.attendsToMasks;
  if (hides && alibi > 0) throw noTokenVectors("a model with a position bias whose mask tokens are not attended to");
  const mask = fields.get(maskTokenKey);
  if (rules.queryTokens > 0 && typeof mask !== "number") {
    throw new ServerError(
      "model_file_invalid",
      `the model's file has no ${maskTokenKey}, with which queries are filled`,
    );
  }
  const rows = tensors.rowsOf("dense_2");
  const dense = rows === null ? [] : [tensors.matrix("dense_2", rows, width)];
  const unattendedToken = hides ? (mask as number) : null;
  return { kind: "tokens", length: rows ?? width, dense, head: null, unattendedToken };
}

function noTokenVectors(of: string): ServerError {
  const message = `the wasm engine has no vectors for each token of ${of}: use another model`;
  return new ServerError("unsupported", message, { param: "pooling" });
}

/**
 * Returns the pooling for one vector per token, to replace the pooling that an encoder's file specifies. Throws
 * `unsupported`.
 */
export function tokenPooling(pooling: GraphPooling, width: number): GraphPooling {
  if (pooling.kind === "tokens") return pooling;
  if (pooling.kind === "rank") throw noTokenVectors("a reranker");
  return { kind: "tokens", length: width, dense: [], head: null };
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
