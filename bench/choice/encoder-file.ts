// Encoder file of a benchmark: converts an embedding model of architecture bert from its published form, a folder with
// model.safetensors, config.json and vocab.txt, to a GGUF file with F16 matrices and its real vocabulary. A generated
// encoder is not suitable, because with its small vocabulary a text has several times as many tokens.
import { existsSync } from "node:fs";
import { open, readFile, rename, stat } from "node:fs/promises";
import { join } from "node:path";
import { GGUFValueType } from "@huggingface/gguf";
import { resolveModel } from "../../engines/files/hub/resolve-model.ts";
import { readSafetensors } from "../../engines/files/lora/safetensors.ts";
import { f32, list, type Tensor, text, u32, writeGguf } from "../../test/fixtures/models/tiny-gguf.ts";

const weightsName = "model.safetensors";
const convertedName = "encoder-F16.gguf";
const meanPooling = 1;

/** Returns the path of an encoder's GGUF file. `id`: a folder to convert, or anything that resolveModel() accepts. */
export async function encoderFile(id: string): Promise<string> {
  if (!existsSync(join(id, weightsName))) return (await resolveModel(id)).path;
  const path = join(id, convertedName);
  if (existsSync(path)) return path;
  const unfinished = `${path}.${process.pid}`;
  const tensors = await bertTensors(join(id, weightsName));
  await writeGguf(unfinished, { fields: await bertFields(id), tensors, weights: "F16" });
  await rename(unfinished, path);
  return path;
}

async function bertFields(folder: string): Promise<Record<string, object>> {
  const config = JSON.parse(await readFile(join(folder, "config.json"), "utf8")) as Record<string, number>;
  const words = (await readFile(join(folder, "vocab.txt"), "utf8")).split("\n").filter((word) => word !== "");
  const idOf = (token: string) => u32(words.indexOf(token));
  return {
    "general.architecture": text("bert"),
    "general.file_type": u32(1),
    "bert.context_length": u32(config.max_position_embeddings ?? 0),
    "bert.embedding_length": u32(config.hidden_size ?? 0),
    "bert.block_count": u32(config.num_hidden_layers ?? 0),
    "bert.feed_forward_length": u32(config.intermediate_size ?? 0),
    "bert.attention.head_count": u32(config.num_attention_heads ?? 0),
    "bert.attention.layer_norm_epsilon": f32(config.layer_norm_eps ?? 0),
    "bert.attention.causal": { value: false, type: GGUFValueType.BOOL },
    "bert.pooling_type": u32(meanPooling),
    "tokenizer.ggml.model": text("bert"),
    "tokenizer.ggml.tokens": list(words.map(tokenOf), GGUFValueType.STRING),
    "tokenizer.ggml.token_type": list(
      words.map((word) => (isControl(word) ? 3 : 1)),
      GGUFValueType.INT32,
    ),
    "tokenizer.ggml.token_type_count": u32(config.type_vocab_size ?? 0),
    "tokenizer.ggml.padding_token_id": idOf("[PAD]"),
    "tokenizer.ggml.unknown_token_id": idOf("[UNK]"),
    "tokenizer.ggml.cls_token_id": idOf("[CLS]"),
    "tokenizer.ggml.bos_token_id": idOf("[CLS]"),
    "tokenizer.ggml.seperator_token_id": idOf("[SEP]"),
    "tokenizer.ggml.mask_token_id": idOf("[MASK]"),
  };
}

function isControl(word: string): boolean {
  return /^\[.+\]$/.test(word);
}

/** Returns a word piece as GGUF files spell it: U+2581 before a token that begins a word, no prefix before a continuation. */
function tokenOf(word: string): string {
  if (isControl(word)) return word;
  return word.startsWith("##") ? word.slice(2) : `\u2581${word}`;
}

/** GGUF names of tensors, by published name. Tensors that neither this table nor `layerNames` lists are not used. */
const outerNames: Readonly<Record<string, string>> = {
  "embeddings.word_embeddings": "token_embd",
  "embeddings.position_embeddings": "position_embd",
  "embeddings.token_type_embeddings": "token_types",
  "embeddings.LayerNorm": "token_embd_norm",
};
const layerNames: Readonly<Record<string, string>> = {
  "attention.self.query": "attn_q",
  "attention.self.key": "attn_k",
  "attention.self.value": "attn_v",
  "attention.output.dense": "attn_output",
  "attention.output.LayerNorm": "attn_output_norm",
  "intermediate.dense": "ffn_up",
  "output.dense": "ffn_down",
  "output.LayerNorm": "layer_output_norm",
};

function nameOf(published: string): string | null {
  const [, path = "", kind = ""] = /^(?:bert\.)?(.+)\.(weight|bias)$/.exec(published) ?? [];
  const [, layer, within = ""] = /^encoder\.layer\.(\d+)\.(.+)$/.exec(path) ?? [];
  const name = layer === undefined ? outerNames[path] : layerNames[within];
  if (name === undefined) return null;
  return layer === undefined ? `${name}.${kind}` : `blk.${layer}.${name}.${kind}`;
}

/** Reads the tensors, which must be F32. */
async function bertTensors(path: string): Promise<Tensor[]> {
  const { size } = await stat(path);
  const file = await open(path, "r");
  const read = async (target: Uint8Array, position: number) => {
    await file.read(target, 0, target.length, position);
  };
  try {
    const tensors: Tensor[] = [];
    for (const { name, shape, offset, bytes } of await readSafetensors({ name: weightsName, size, read })) {
      const ours = nameOf(name);
      if (ours === null) continue;
      const values = new Float32Array(bytes / Float32Array.BYTES_PER_ELEMENT);
      await read(new Uint8Array(values.buffer), offset);
      // In GGUF files, the position and token type tables, which are added to the embedding, have the type F32.
      const type = /^(?:position_embd|token_types)/.test(ours) ? { type: "F32" as const } : {};
      tensors.push({ name: ours, shape: shape.toReversed(), values, ...type });
    }
    return tensors;
  } finally {
    await file.close();
  }
}
