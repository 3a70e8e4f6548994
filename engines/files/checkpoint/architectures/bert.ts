// BERT and its relatives: BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT; encoders with learnt positions.
import type { Config } from "../config.ts";
import type { Pairs } from "../pairs.ts";
import type { CheckpointArchitecture, TensorTable } from "./architecture.ts";
import { from } from "./changes.ts";

/** Adds the key/value pairs that all encoders have. */
export function addEncoderPairs(config: Config, pairs: Pairs): void {
  pairs.truth("attention.causal", false);
  pairs.set("tokenizer.ggml.token_type_count", { type: "u32", value: config.countOr(1, "type_vocab_size") });
  addLabels(config, pairs);
}

/** Whether the model returns scores, as rerankers do. */
export function isClassifier(config: Config): boolean {
  const classes = config.value("architectures");
  return Array.isArray(classes) && String(classes[0]).endsWith("ForSequenceClassification");
}

function addLabels(config: Config, pairs: Pairs): void {
  if (!isClassifier(config)) return;
  const labels = Object.entries(config.object("id2label") ?? { 0: "LABEL_0", 1: "LABEL_1" })
    .sort(([one], [other]) => Number(one) - Number(other))
    .map(([, label]) => String(label));
  pairs.set(`${pairs.architecture}.classifier.output_labels`, { type: "array", of: "string", value: labels });
  pairs.counts({ pooling_type: 4 });
}

/** Tensors that embeddings do not use: the heads for training, and BERT's pooler. */
export const bertHeads: TensorTable = {
  "pooler.dense": null,
  "cls.predictions.bias": null,
  "cls.predictions.decoder": null,
  "cls.predictions.transform.dense": null,
  "cls.predictions.transform.LayerNorm": null,
  "cls.seq_relationship": null,
  "lm_head.bias": null,
  "lm_head.decoder": null,
  "lm_head.dense": null,
  "lm_head.layer_norm": null,
};

const scoringHead: TensorTable = {
  classifier: "cls.output",
  "classifier.dense": "cls",
  "classifier.out_proj": "cls.output",
};

export const bertLayers: TensorTable = {
  "encoder.layer.{l}.attention.self.query": "blk.{l}.attn_q",
  "encoder.layer.{l}.attention.self.key": "blk.{l}.attn_k",
  "encoder.layer.{l}.attention.self.value": "blk.{l}.attn_v",
  "encoder.layer.{l}.attention.output.dense": "blk.{l}.attn_output",
  "encoder.layer.{l}.attention.output.LayerNorm": "blk.{l}.attn_output_norm",
  "encoder.layer.{l}.intermediate.dense": "blk.{l}.ffn_up",
  "encoder.layer.{l}.output.dense": "blk.{l}.ffn_down",
  "encoder.layer.{l}.output.LayerNorm": "blk.{l}.layer_output_norm",
  // Names in older checkpoints.
  "encoder.layer.{l}.attention.output.LayerNorm.gamma": { to: "blk.{l}.attn_output_norm", suffix: ".weight" },
  "encoder.layer.{l}.attention.output.LayerNorm.beta": { to: "blk.{l}.attn_output_norm", suffix: ".bias" },
  "encoder.layer.{l}.output.LayerNorm.gamma": { to: "blk.{l}.layer_output_norm", suffix: ".weight" },
  "encoder.layer.{l}.output.LayerNorm.beta": { to: "blk.{l}.layer_output_norm", suffix: ".bias" },
};

export const bertEmbeddings: TensorTable = {
  "embeddings.word_embeddings": "token_embd",
  "embeddings.position_embeddings": "position_embd",
  "embeddings.token_type_embeddings": "token_types",
  "embeddings.LayerNorm": "token_embd_norm",
  "embeddings.LayerNorm.gamma": { to: "token_embd_norm", suffix: ".weight" },
  "embeddings.LayerNorm.beta": { to: "token_embd_norm", suffix: ".bias" },
};

const bertTensors: TensorTable = { ...bertEmbeddings, ...bertLayers, ...bertHeads, ...scoringHead };

export const bert: CheckpointArchitecture = {
  name: "bert",
  classes: ["BertModel", "BertForMaskedLM"],
  prefixes: ["bert."],
  defaults: { layer_norm_eps: 1e-12, type_vocab_size: 2 },
  addPairs(config, pairs) {
    config.mustBe("position_embedding_type", "absolute");
    addEncoderPairs(config, pairs);
  },
  tensors: bertTensors,
  pools: true,
};

/** BERT with a scoring head, whose first matrix is the pooler. */
export const bertClassifier: CheckpointArchitecture = {
  ...bert,
  classes: ["BertForSequenceClassification"],
  tensors: { ...bertTensors, "pooler.dense": "cls" },
};

/** Returns the number of rows at the start of the position table that no token uses. */
function unusedPositions(config: Config): number {
  return config.countOr(1, "pad_token_id") + 1;
}

export const roberta: CheckpointArchitecture = {
  ...bert,
  classes: [
    ...["RobertaModel", "RobertaForMaskedLM", "RobertaForSequenceClassification", "CamembertModel"],
    ...["XLMRobertaModel", "XLMRobertaForMaskedLM", "XLMRobertaForSequenceClassification"],
  ],
  prefixes: ["roberta.", "xlm_roberta.", "camembert."],
  defaults: { layer_norm_eps: 1e-5, type_vocab_size: 1, pad_token_id: 1 },
  addPairs(config, pairs) {
    bert.addPairs?.(config, pairs);
    pairs.counts({ context_length: config.count("max_position_embeddings") - unusedPositions(config) });
  },
  tensors: {
    ...bertTensors,
    "embeddings.position_embeddings": { to: "position_embd", change: from(unusedPositions) },
  },
};

/** Fields that ColBERT variants of all encoders share. `colbertProjection` is the matrix that projects each token. */
export const colbertRules = { classes: ["HF_ColBERT"], pools: false, isMultiVector: true };
export const colbertProjection: TensorTable = { linear: "dense_2" };

export const colbert: CheckpointArchitecture = {
  ...bert,
  ...colbertRules,
  applies: (config) => config.value("model_type") === "bert",
  tensors: { ...bertTensors, ...colbertProjection },
};

export const distilbert: CheckpointArchitecture = {
  ...bert,
  // No class with a scoring head, because the engines do not compute the head's activation function.
  classes: ["DistilBertModel", "DistilBertForMaskedLM"],
  prefixes: ["distilbert."],
  defaults: { layer_norm_eps: 1e-12, type_vocab_size: 1 },
  addPairs(config, pairs) {
    addEncoderPairs(config, pairs);
    pairs.floats({ "attention.layer_norm_epsilon": 1e-12 });
  },
  tensors: {
    ...bertEmbeddings,
    ...bertHeads,
    vocab_transform: null,
    vocab_layer_norm: null,
    vocab_projector: null,
    "transformer.layer.{l}.attention.q_lin": "blk.{l}.attn_q",
    "transformer.layer.{l}.attention.k_lin": "blk.{l}.attn_k",
    "transformer.layer.{l}.attention.v_lin": "blk.{l}.attn_v",
    "transformer.layer.{l}.attention.out_lin": "blk.{l}.attn_output",
    "transformer.layer.{l}.sa_layer_norm": "blk.{l}.attn_output_norm",
    "transformer.layer.{l}.ffn.lin1": "blk.{l}.ffn_up",
    "transformer.layer.{l}.ffn.lin2": "blk.{l}.ffn_down",
    "transformer.layer.{l}.output_layer_norm": "blk.{l}.layer_output_norm",
  },
};
