// GGML model: describes a GGML file of a Llama model as a GGUF file. The tensors' bytes are unchanged; only names differ. Fields that GGML
// files lack get the values that programs of that time assumed.
import { isUtf8 } from "node:buffer";
import { ServerError } from "../../../runtime/errors.ts";
import { Config, type JsonObject } from "../checkpoint/config.ts";
import { Pairs } from "../checkpoint/pairs.ts";
import { damagedFile, quote } from "../gguf/invalid-file.ts";
import type { TypedValue } from "../gguf/typed-value.ts";
import { type GgmlFile, type GgmlTensor, readGgml } from "./ggml-file.ts";

export interface GgmlModel {
  readonly pairs: ReadonlyMap<string, TypedValue>;
  /** Key/value pairs of the vocabulary in the file. */
  readonly vocabulary: ReadonlyMap<string, TypedValue>;
  readonly vocabSize: number;
  /** Tensors by their GGUF names. */
  readonly tensors: ReadonlyMap<string, GgmlTensor>;
}

export interface GgmlOptions {
  /** Number of query heads for each key head (`gqa`). */
  readonly queryHeads: number;
  /** Values of fields that the file does not have: rms_norm_eps, rope_theta, max_position_embeddings. */
  readonly overrides: JsonObject;
}

const defaults = { rms_norm_eps: 1e-5, rope_theta: 10_000, max_position_embeddings: 2048 };
const names: Readonly<Record<string, string>> = {
  tok_embeddings: "token_embd",
  norm: "output_norm",
  output: "output",
  "attention.wq": "attn_q",
  "attention.wk": "attn_k",
  "attention.wv": "attn_v",
  "attention.wo": "attn_output",
  attention_norm: "attn_norm",
  "feed_forward.w1": "ffn_gate",
  "feed_forward.w2": "ffn_down",
  "feed_forward.w3": "ffn_up",
  ffn_norm: "ffn_norm",
};
const inLayer = [
  "attn_q",
  "attn_k",
  "attn_v",
  "attn_output",
  "attn_norm",
  "ffn_gate",
  "ffn_down",
  "ffn_up",
  "ffn_norm",
];
const typeNormal = 1;
const typeUnknown = 2;
const typeControl = 3;
const typeByte = 6;
/** First tokens of the Llama tokenizer; GGML files store other texts for them. */
const firstTokens = ["<unk>", "<s>", "</s>"];
const bytes = 256;

/** Describes a GGML file. Throws `model_file_invalid`, `unsupported`, or `config_invalid` for a setting that does not fit. */
export async function openGgml(path: string, { queryHeads, overrides }: GgmlOptions): Promise<GgmlModel> {
  const unknown = Object.keys(overrides).find((field) => !(field in defaults));
  if (unknown !== undefined) {
    const message = `hf_overrides of a GGML file expects ${Object.keys(defaults).join(", ")}; got ${quote(unknown)}`;
    throw new ServerError("config_invalid", message, { param: "hf_overrides" });
  }
  const file = await readGgml(path);
  const tensors = new Map([...file.tensors].map(([name, tensor]) => [nameOf(name, path), tensor]));
  checkTensors(tensors, file, queryHeads, path);
  return {
    pairs: pairsOf(file, tensors, queryHeads, new Config(path, overrides, defaults)),
    vocabulary: vocabularyOf(file, path),
    vocabSize: file.sizes.vocabulary,
    tensors,
  };
}

function nameOf(name: string, path: string): string {
  const [, layer, part = ""] = /^(?:layers\.(\d{1,4})\.)?(.+)\.weight$/.exec(name) ?? [];
  const own = Object.hasOwn(names, part) ? names[part] : undefined;
  if (own === undefined) throw damagedFile(path, `it has the tensor ${quote(name)}, which a Llama model does not have`);
  return layer === undefined ? `${own}.weight` : `blk.${Number(layer)}.${own}.weight`;
}

/** Throws if a tensor is missing, or if its shape does not fit the model's sizes. */
function checkTensors(
  tensors: ReadonlyMap<string, GgmlTensor>,
  { sizes }: GgmlFile,
  queryHeads: number,
  path: string,
): void {
  const { width, heads, layers, vocabulary } = sizes;
  const keyRows = tensors.get("blk.0.attn_k.weight")?.shape[1] ?? 0;
  const stored = width / keyRows;
  if (stored !== queryHeads || heads % queryHeads !== 0) {
    const message = `gqa expects the number of query heads for each key head, ${stored} in ${path}; got ${queryHeads}`;
    throw new ServerError("config_invalid", message, { param: "gqa" });
  }
  const feedForward = tensors.get("blk.0.ffn_gate.weight")?.shape[1] ?? 0;
  const shapes: Readonly<Record<string, readonly number[]>> = {
    ...{ attn_q: [width, width], attn_k: [width, keyRows], attn_v: [width, keyRows], attn_output: [width, width] },
    ...{ ffn_gate: [width, feedForward], ffn_up: [width, feedForward], ffn_down: [feedForward, width] },
    ...{ attn_norm: [width], ffn_norm: [width], output_norm: [width] },
    ...{ token_embd: [width, vocabulary], output: [width, vocabulary] },
  };
  const expected = ["token_embd", "output_norm", "output"].map((part) => [part, `${part}.weight`] as const);
  for (let layer = 0; layer < layers; layer++) {
    expected.push(...inLayer.map((part) => [part, `blk.${layer}.${part}.weight`] as const));
  }
  for (const [part, name] of expected) {
    const { shape } = tensors.get(name) ?? {};
    if (shape?.join() !== shapes[part]?.join()) {
      throw damagedFile(path, `${name} is ${shape?.join(" x ") ?? "missing"}; expected ${shapes[part]?.join(" x ")}`);
    }
  }
  if (tensors.size > expected.length) throw damagedFile(path, `it has tensors of more than ${layers} layers`);
}

function pairsOf(
  { sizes }: GgmlFile,
  tensors: ReadonlyMap<string, GgmlTensor>,
  queryHeads: number,
  config: Config,
): ReadonlyMap<string, TypedValue> {
  const pairs = new Pairs("llama", config.path);
  pairs.counts({
    block_count: sizes.layers,
    context_length: config.count("max_position_embeddings"),
    embedding_length: sizes.width,
    feed_forward_length: tensors.get("blk.0.ffn_gate.weight")?.shape[1],
    "attention.head_count": sizes.heads,
    "attention.head_count_kv": sizes.heads / queryHeads,
    "rope.dimension_count": sizes.rotated,
    vocab_size: sizes.vocabulary,
  });
  pairs.floats({
    "attention.layer_norm_rms_epsilon": config.number("rms_norm_eps"),
    "rope.freq_base": config.number("rope_theta"),
  });
  return pairs.values;
}

/** Returns the SentencePiece vocabulary of Llama: three control tokens, the bytes, then pieces with their scores. */
function vocabularyOf({ tokens }: GgmlFile, path: string): ReadonlyMap<string, TypedValue> {
  const texts: string[] = [];
  const types: number[] = [];
  for (const [token, { bytes: piece }] of tokens.entries()) {
    const first = firstTokens[token];
    const isByte = token >= firstTokens.length && token < firstTokens.length + bytes && piece.length === 1;
    if (first === undefined && !isByte && !isUtf8(piece)) throw damagedFile(path, `its token ${token} is no UTF-8`);
    const hex = (piece[0] ?? 0).toString(16).toUpperCase().padStart(2, "0");
    texts.push(first ?? (isByte ? `<0x${hex}>` : piece.toString("utf8").replaceAll(" ", "\u2581")));
    if (first !== undefined) types.push(token === 0 ? typeUnknown : typeControl);
    else types.push(isByte ? typeByte : piece.length === 0 ? typeControl : typeNormal);
  }
  const key = (name: string) => `tokenizer.ggml.${name}`;
  return new Map<string, TypedValue>([
    [key("model"), { type: "string", value: "llama" }],
    [key("tokens"), { type: "array", of: "string", value: texts }],
    [key("scores"), { type: "array", of: "f32", value: tokens.map(({ score }) => score) }],
    [key("token_type"), { type: "array", of: "i32", value: types }],
    [key("unknown_token_id"), { type: "u32", value: 0 }],
    [key("bos_token_id"), { type: "u32", value: 1 }],
    [key("eos_token_id"), { type: "u32", value: 2 }],
  ]);
}
