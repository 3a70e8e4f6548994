// Generator of a checkpoint of any size with random weights, for measurements that depend only on the size. It writes config.json,
// one safetensors file in F16, and a byte-level tokenizer.
import { randomFillSync } from "node:crypto";
import { mkdir, open, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { byteSpellings } from "../../engines/text/tokenizer/byte-alphabet.ts";
import type { RandomShape } from "../load/random-model.ts";

const pieceBytes = 1024 * 1024;

/** Writes a model of the llama architecture and returns the size of its weights in bytes. */
export async function writeBigCheckpoint(folder: string, shape: RandomShape): Promise<number> {
  await mkdir(folder, { recursive: true });
  const tensors = tensorsOf(shape);
  const head: Record<string, object> = {};
  let offset = 0;
  for (const [name, dimensions] of tensors) {
    const bytes = 2 * dimensions.reduce((product, length) => product * length, 1);
    head[name] = { dtype: "F16", shape: dimensions, data_offsets: [offset, offset + bytes] };
    offset += bytes;
  }
  const text = Buffer.from(JSON.stringify(head));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(text.length));
  const file = await open(join(folder, "model.safetensors"), "w");
  try {
    await file.write(Buffer.concat([length, text]));
    const piece = randomHalves();
    for (let left = offset; left > 0; left -= piece.length) await file.write(piece, 0, Math.min(left, piece.length));
  } finally {
    await file.close();
  }
  await writeFile(join(folder, "config.json"), JSON.stringify(configOf(shape)));
  await writeFile(join(folder, "tokenizer.json"), JSON.stringify(tokenizerOf(shape.vocabSize)));
  await writeFile(join(folder, "tokenizer_config.json"), JSON.stringify({ eos_token: "<|endoftext|>" }));
  return offset;
}

function tensorsOf({ layers, width, feedForward, heads, kvHeads, vocabSize }: RandomShape): [string, number[]][] {
  const kvWidth = (width / heads) * kvHeads;
  const tensors: [string, number[]][] = [["model.embed_tokens.weight", [vocabSize, width]]];
  for (let layer = 0; layer < layers; layer++) {
    const own = (name: string, ...dimensions: number[]) => {
      tensors.push([`model.layers.${layer}.${name}.weight`, dimensions]);
    };
    own("input_layernorm", width);
    own("self_attn.q_proj", width, width);
    own("self_attn.k_proj", kvWidth, width);
    own("self_attn.v_proj", kvWidth, width);
    own("self_attn.o_proj", width, width);
    own("post_attention_layernorm", width);
    own("mlp.gate_proj", feedForward, width);
    own("mlp.up_proj", feedForward, width);
    own("mlp.down_proj", width, feedForward);
  }
  tensors.push(["model.norm.weight", [width]]);
  return tensors;
}

/** Returns random F16 values of small magnitude, with exponents from 2^-10 to 2^-7. */
function randomHalves(): Buffer {
  const bytes = randomFillSync(Buffer.alloc(pieceBytes));
  for (let at = 1; at < bytes.length; at += 2) {
    const high = bytes[at] as number;
    bytes[at] = (high & 0x83) | 0x10 | (((high >> 2) & 3) << 2);
  }
  return bytes;
}

function configOf({ layers, width, feedForward, heads, kvHeads, vocabSize }: RandomShape): object {
  return {
    architectures: ["LlamaForCausalLM"],
    hidden_size: width,
    intermediate_size: feedForward,
    num_hidden_layers: layers,
    num_attention_heads: heads,
    num_key_value_heads: kvHeads,
    max_position_embeddings: 2048,
    rms_norm_eps: 1e-5,
    rope_theta: 10_000,
    tie_word_embeddings: true,
    vocab_size: vocabSize,
  };
}

function tokenizerOf(vocabSize: number): object {
  const tokens = ["<|endoftext|>", ...byteSpellings];
  while (tokens.length < vocabSize) tokens.push(`filler${tokens.length}`);
  const byteLevel = { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: true };
  const special = { single_word: false, lstrip: false, rstrip: false, normalized: false, special: true };
  return {
    version: "1.0",
    added_tokens: [{ id: 0, content: "<|endoftext|>", ...special }],
    normalizer: null,
    pre_tokenizer: byteLevel,
    post_processor: null,
    decoder: byteLevel,
    model: { type: "BPE", vocab: Object.fromEntries(tokens.map((token, id) => [token, id])), merges: [] },
  };
}
