// GGUF header writer: our reader and the official reader read what it has written.
import assert from "node:assert/strict";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { gguf } from "@huggingface/gguf";
import { readHead } from "../../../../engines/files/gguf/reader.ts";
import { readTensorTable } from "../../../../engines/files/gguf/tensors.ts";
import type { TypedValue } from "../../../../engines/files/gguf/typed-value.ts";
import { ggufHead, tensorByteLength } from "../../../../engines/files/gguf/writer.ts";
import { inTemporaryFolder } from "./gguf-bytes.ts";

const pairs = new Map<string, TypedValue>([
  ["general.architecture", { type: "string", value: "llama" }],
  ["a.u8", { type: "u8", value: 200 }],
  ["a.i8", { type: "i8", value: -100 }],
  ["a.u16", { type: "u16", value: 60_000 }],
  ["a.i16", { type: "i16", value: -30_000 }],
  ["a.u32", { type: "u32", value: 4_000_000_000 }],
  ["a.i32", { type: "i32", value: -2_000_000_000 }],
  ["a.u64", { type: "u64", value: 2 ** 50 }],
  ["a.i64", { type: "i64", value: -(2 ** 50) }],
  ["a.f32", { type: "f32", value: 0.5 }],
  ["a.f64", { type: "f64", value: 0.1 }],
  ["a.bool", { type: "bool", value: true }],
  ["a.text", { type: "string", value: "▁ħ🦙" }],
  ["a.numbers", { type: "array", of: "i32", value: [1, -2, 3] }],
  ["a.floats", { type: "array", of: "f32", value: [0.5, 2] }],
  ["a.truths", { type: "array", of: "bool", value: [true, false] }],
  // More bytes than the writer's first buffer holds.
  ["a.texts", { type: "array", of: "string", value: Array.from({ length: 20_000 }, (_, i) => `token ${i}`) }],
]);
const tensors = [
  { name: "token_embd.weight", type: 1, shape: [5, 3] },
  { name: "output_norm.weight", type: 0, shape: [5] },
  { name: "blk.0.ffn_gate_exps.weight", type: 39, shape: [32, 2, 4] },
];

describe("the writer of GGUF headers", () => {
  it("writes pairs of all types and places tensors where readers find them", async () => {
    await inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      const { bytes, offsets, fileBytes } = ggufHead(pairs, tensors);
      const file = Buffer.alloc(fileBytes);
      bytes.copy(file);
      await writeFile(path, file);
      const head = await readHead(path, () => true);
      assert.deepEqual(
        [...head.pairs],
        [...pairs].map(([key, { value }]) => [key, value]),
      );
      const table = await readTensorTable(path);
      for (const [i, { name, type, shape }] of tensors.entries()) {
        const found = table.tensors.get(name);
        assert.deepEqual([found?.type, found?.shape, found?.offset], [type, shape, offsets[i]]);
        assert.equal(found?.bytes, tensorByteLength(type, shape));
        assert.equal((offsets[i] as number) % 32, 0);
      }
      const official = await gguf(path, { allowLocalFile: true });
      assert.equal(official.tensorInfos.length, tensors.length);
      assert.equal(official.metadata["a.text" as never], "▁ħ🦙");
    });
  });

  it("writes the original bytes of a value, however many", () => {
    const exact = Buffer.alloc(300_000, "ab");
    const { bytes } = ggufHead(new Map([["a", { type: "array", of: "string", value: [], exact }]]), []);
    assert.ok(bytes.includes(exact));
  });

  it("refuses rows that are not whole blocks, and numbers that a type cannot hold", () => {
    assert.throws(() => ggufHead(new Map(), [{ name: "a", type: 2, shape: [33, 2] }]), RangeError);
    assert.throws(() => ggufHead(new Map([["a", { type: "u8", value: 256 }]]), []), RangeError);
  });
});
