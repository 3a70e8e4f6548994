// GGML files: what is read from them, which files are rejected with which error, and damaged files. GGML_FUZZ_ROUNDS sets the
// number of rounds.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { type GgmlModel, type GgmlOptions, openGgml } from "../../../../engines/files/ggml/ggml-model.ts";
import { findLocalModel } from "../../../../engines/files/hub/local-model.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { type GgmlContent, ggmlBytes, ggmlOf } from "../../../fixtures/gguf/ggml-file.ts";
import { writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-ggml-"));
const path = join(folder, "model.bin");
const plain: GgmlOptions = { queryHeads: 2, overrides: {} };
const rounds = Number(process.env.GGML_FUZZ_ROUNDS ?? 500);
let content: GgmlContent;

async function opened(bytes: Uint8Array, options = plain): Promise<GgmlModel> {
  await writeFile(path, bytes);
  return await openGgml(path, options);
}

describe("a GGML file", () => {
  before(async () => {
    const gguf = join(folder, "source.gguf");
    await writeTinyModel(gguf, { seed: 1, heads: 4, kvHeads: 2, weights: "Q8_0", vocabularySize: 300 });
    content = await ggmlOf(gguf);
  });
  after(() => rmSync(folder, { recursive: true }));

  it("is read like a GGUF file of a Llama model, with the former default values for missing fields", async () => {
    const { pairs, tensors, vocabSize, vocabulary } = await opened(ggmlBytes(content));
    const values = [
      "block_count",
      "attention.head_count_kv",
      "feed_forward_length",
      "context_length",
      "rope.freq_base",
    ];
    assert.deepEqual(
      values.map((key) => pairs.get(`llama.${key}`)?.value),
      [2, 2, 128, 2048, 10_000],
    );
    assert.equal(tensors.size, content.tensors.length);
    assert.deepEqual(tensors.get("blk.1.ffn_down.weight")?.shape, [128, 64]);
    assert.ok([...tensors.values()].every(({ offset }) => offset % 32 === 0));
    assert.equal(vocabSize, 300);
    const tokens = vocabulary.get("tokenizer.ggml.tokens")?.value as string[];
    assert.deepEqual(tokens.slice(0, 3), ["<unk>", "<s>", "</s>"]);
  });

  it("has the vocabulary of SentencePiece: control tokens, bytes, pieces with spaces", async () => {
    const pieces = [" ⁇ ", "", "", "\0", "\n", " the", "é"].map((text, i) => ({
      bytes: Buffer.from(text),
      score: -i / 2,
    }));
    const [, ...sizes] = content.sizes;
    const matrices = content.tensors.map((tensor) => {
      const isEnd = /^(?:tok_embeddings|output)\./.test(tensor.name);
      return isEnd ? { ...tensor, shape: [64, 7], bytes: tensor.bytes.subarray(0, 7 * 68) } : tensor;
    });
    const { vocabulary } = await opened(ggmlBytes({ sizes: [7, ...sizes], tokens: pieces, tensors: matrices }));
    const value = (name: string) => vocabulary.get(`tokenizer.ggml.${name}`)?.value;
    assert.deepEqual(value("tokens"), ["<unk>", "<s>", "</s>", "<0x00>", "<0x0A>", "▁the", "é"]);
    assert.deepEqual(value("token_type"), [2, 3, 3, 6, 6, 1, 1]);
    assert.deepEqual((value("scores") as number[]).slice(-2), [-2.5, -3]);
  });

  it("gets missing fields from hf_overrides", async () => {
    const { pairs } = await opened(ggmlBytes(content), {
      ...plain,
      overrides: { rms_norm_eps: 1e-6, rope_theta: 5000 },
    });
    assert.equal(pairs.get("llama.rope.freq_base")?.value, 5000);
    assert.equal(pairs.get("llama.attention.layer_norm_rms_epsilon")?.value, 1e-6);
  });

  it("is found in a folder only by its name", async () => {
    await opened(ggmlBytes(content));
    assert.equal(await findLocalModel(path, null), path);
    assert.equal(await findLocalModel(folder, "model.bin"), path);
    assert.equal(await findLocalModel(folder, null), join(folder, "source.gguf"));
  });

  const wrong: readonly (readonly [string, (bytes: Buffer) => Buffer, Partial<GgmlOptions>, string, RegExp])[] = [
    ["an earlier version", (bytes) => set(bytes, 4, 2), {}, "unsupported", /ggjt\) version 2; version 3 can be read/],
    ["an earlier format", (bytes) => set(bytes, 0, 0x67676d6c), {}, "unsupported", /before ggjt/],
    ["no heads", (bytes) => set(bytes, 20, 0), {}, "model_file_invalid", /the number of heads is 0; expected 1 to 64/],
    ["other sizes", (bytes) => set(bytes, 24, 3), {}, "model_file_invalid", /blk\.2\.attn_q\.weight is missing/],
    ["its end missing", (bytes) => bytes.subarray(0, -1), {}, "model_file_invalid", /incomplete copy/],
    ["its vocabulary missing", (bytes) => bytes.subarray(0, 100), {}, "model_file_invalid", /incomplete copy/],
    ["another gqa", (bytes) => bytes, { queryHeads: 1 }, "config_invalid", /gqa expects .* 2 in .*; got 1/],
    [
      "an unknown field",
      (bytes) => bytes,
      { overrides: { x: 1 } },
      "config_invalid",
      /hf_overrides of a GGML file expects rms_norm_eps/,
    ],
    ["a wrong field", (bytes) => bytes, { overrides: { rope_theta: "x" } }, "model_file_invalid", /"rope_theta"/],
  ];
  for (const [what, change, options, code, words] of wrong) {
    it(`is refused for ${what}`, async () => {
      await assert.rejects(opened(change(ggmlBytes(content)), { ...plain, ...options }), (error) => {
        assert.ok(error instanceof ServerError, String(error));
        assert.equal(error.code, code, error.message);
        assert.match(error.message, words);
        return true;
      });
    });
  }

  it(`that is damaged is read or rejected with a specific error: ${rounds} rounds`, async () => {
    const whole = ggmlBytes(content);
    const random = numbersFrom(7);
    let readable = 0;
    for (let round = 0; round < rounds; round++) {
      const bytes = Buffer.from(whole.subarray(0, random() < 0.1 ? Math.floor(random() * whole.length) : whole.length));
      for (let change = 0; change < 2 && bytes.length > 8; change++) {
        // Most damage is done to the headers: sizes, vocabulary, and the header of the first tensor.
        const at = 8 + Math.floor(random() * Math.min(bytes.length - 8, random() < 0.9 ? 4500 : whole.length));
        bytes[at] = Math.floor(random() * 256);
      }
      const isRead = await opened(bytes).then(
        () => true,
        (error) => {
          assert.ok(error instanceof ServerError, `round ${round}: ${error.stack}`);
          assert.ok(error.message.includes(path) || error.code === "config_invalid", error.message);
          return false;
        },
      );
      if (isRead) readable++;
    }
    assert.ok(readable > 0 && readable < rounds, `${readable} of ${rounds}`);
  });
});

function set(bytes: Buffer, at: number, value: number): Buffer {
  bytes.writeUInt32LE(value, at);
  return bytes;
}

function numbersFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}
