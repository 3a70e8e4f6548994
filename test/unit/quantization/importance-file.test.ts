// Importance matrix files: both formats of llama.cpp, and damaged files.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { readTensorTable } from "../../../engines/files/gguf/tensors.ts";
import { ggufHead } from "../../../engines/files/gguf/writer.ts";
import { cimatrixBytes } from "../../../engines/quantization/importance/cimatrix.ts";
import { readImportance } from "../../../engines/quantization/importance/importance-file.ts";
import {
  importanceOf,
  writeCimatrix,
  writeImportance,
} from "../../../engines/quantization/importance/importance-writer.ts";
import { byModule, byTensor } from "../../../engines/quantization/importance/module-names.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-importance-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const path = join(folder, "m.imatrix");

const int = (value: number) => {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
};
const floats = (...values: number[]) => Buffer.from(Float32Array.from(values).buffer);
const name = "blk.0.attn_q.weight";
const binary = Buffer.concat([int(1), int(name.length), Buffer.from(name), int(2), int(3), floats(2, 4, 0)]);

function gguf(sums: Buffer, counts: Buffer): Buffer {
  const tensors = [
    { name: `${name}.in_sum2`, type: 0, shape: [2, 2] },
    { name: `${name}.counts`, type: 0, shape: [1, 2] },
  ];
  const { bytes, offsets, fileBytes } = ggufHead(new Map(), tensors);
  const file = Buffer.alloc(fileBytes);
  bytes.copy(file);
  for (const [i, data] of [sums, counts].entries()) data.copy(file, offsets[i]);
  return file;
}

describe("an importance matrix", () => {
  it("is read from the binary format: sums over calls", async () => {
    writeFileSync(path, binary);
    assert.deepEqual([...(await readImportance(path))], [[name, Float32Array.of(1, 2, 0)]]);
  });

  it("is read from GGUF: sums over counts of each matrix; matrices without data have ones", async () => {
    writeFileSync(path, gguf(floats(8, 4, 5, 5), floats(4, 0)));
    assert.deepEqual([...(await readImportance(path))], [[name, Float32Array.of(2, 1, 1, 1)]]);
  });

  const refused: Readonly<Record<string, [bytes: Buffer, message: RegExp]>> = {
    "is empty": [Buffer.alloc(0), /it ends after 0 bytes/],
    "ends early": [binary.subarray(0, -1), /it ends after \d+ bytes, in an entry/],
    "claims many entries": [Buffer.concat([int(1e9), binary]), /it claims 1000000000 entries/],
    "has a negative number": [
      Buffer.concat([binary.subarray(0, -4), floats(-1)]),
      /"blk\.0\.attn_q\.weight" has the value -0\.5/,
    ],
    "has no sums": [ggufHead(new Map(), []).bytes, /no tensor that ends in "\.in_sum2"/],
    "is a cut GGUF": [gguf(floats(8, 4, 5, 5), floats(4, 0)).subarray(0, 100), /m\.imatrix/],
  };
  for (const [what, [bytes, message]] of Object.entries(refused)) {
    it(`that ${what} is refused`, async () => {
      writeFileSync(path, bytes);
      await assert.rejects(readImportance(path), { code: "config_invalid", message });
    });
  }

  it("that is missing is refused", async () => {
    await assert.rejects(readImportance(join(folder, "none")), { code: "config_invalid", message: /ENOENT/ });
  });
});

describe("sums over the inputs of matrices", () => {
  it("are written as a file that is read as their means", async () => {
    const target = join(folder, "written", "sums.gguf");
    const sums = [
      { name, squares: Float32Array.of(2, 4, 6, 8), rows: Float32Array.of(2, 0) },
      { name: "blk.1.attn_q.weight", squares: Float32Array.of(9), rows: Float32Array.of(3) },
      { name: "blk.2.attn_q.weight", squares: Float32Array.of(0), rows: Float32Array.of(0) },
    ];
    const importance = importanceOf(sums);
    assert.deepEqual(importance.get(name), Float32Array.of(1, 2, 1, 1));
    await writeImportance(target, sums, { dataset: "text", chunkTokens: 512, chunks: 2 });
    const expected = new Map([...importance].filter(([matrix]) => matrix !== "blk.2.attn_q.weight"));
    assert.deepEqual(await readImportance(target), expected);
    const { fields } = await readTensorTable(target);
    assert.deepEqual([fields.get("imatrix.chunk_size"), fields.get("imatrix.chunk_count")], [512, 2]);
  });
});

describe("a .cimatrix file", () => {
  const target = join(folder, "m.cimatrix");
  const module = "model.layers.3.self_attn.q_proj";
  const whole = cimatrixBytes(new Map([[module, Float32Array.of(1, 2, 0)]]));

  it("has the means by the names of modules, which become those of tensors", async () => {
    writeFileSync(target, whole);
    const importance = await readImportance(target);
    assert.deepEqual([...importance], [[module, Float32Array.of(1, 2, 0)]]);
    assert.deepEqual([...byTensor(importance, "llama").keys()], ["blk.3.attn_q.weight"]);
  });

  it("is written from sums; experts without rows have zeros", async () => {
    const sums = [
      { name: "blk.1.ffn_up_exps.weight", squares: Float32Array.of(2, 4, 0, 0), rows: Float32Array.of(2, 0) },
      { name: "blk.0.attn_v.weight", squares: Float32Array.of(9), rows: Float32Array.of(3) },
      { name: "blk.2.attn_v.weight", squares: Float32Array.of(0), rows: Float32Array.of(0) },
    ];
    await writeCimatrix(target, sums, "qwen3moe");
    const written = await readImportance(target);
    assert.deepEqual(
      [...written],
      [
        ["model.layers.1.mlp.experts.up_proj", Float32Array.of(1, 2, 0, 0)],
        ["model.layers.0.self_attn.v_proj", Float32Array.of(3)],
      ],
    );
    assert.deepEqual([...byTensor(written, "qwen3moe").keys()], ["blk.1.ffn_up_exps.weight", "blk.0.attn_v.weight"]);
  });

  it("has the names that each architecture gives its modules", () => {
    const one = Float32Array.of(1);
    const both = (architecture: string, modules: Record<string, string>) => {
      const named = new Map(Object.keys(modules).map((name) => [name, one]));
      assert.deepEqual([...byTensor(named, architecture).keys()], Object.values(modules));
      assert.deepEqual([...byModule(byTensor(named, architecture), architecture).keys()], Object.keys(modules));
    };
    both("llama", {
      "model.embed_tokens": "token_embd.weight",
      lm_head: "output.weight",
      "model.layers.12.mlp.down_proj": "blk.12.ffn_down.weight",
      "model.layers.0.block_sparse_moe.experts.gate_proj": "blk.0.ffn_gate_exps.weight",
    });
    both("phi3", { "model.layers.0.self_attn.qkv_proj": "blk.0.attn_qkv.weight" });
    both("gpt-oss", { "model.layers.0.mlp.experts.down_proj": "blk.0.ffn_down_exps.weight" });
  });

  it("is rejected with an error that names a module without counterpart", () => {
    const named = (name: string) => new Map([[name, Float32Array.of(1)]]);
    const refused = (name: string, architecture: string) =>
      assert.throws(() => byTensor(named(name), architecture), {
        code: "config_invalid",
        message: new RegExp(`has "${name}", whose`),
      });
    refused("model.layers.0.self_attn.qkv_proj", "llama");
    refused("model.layers.0.self_attn.q_proj", "mamba");
    refused("model.layers.0.linear_attn.out_proj", "qwen3next");
    assert.throws(
      () => byModule(named("blk.0.ssm_out.weight"), "qwen3next"),
      /"blk.0.ssm_out.weight", whose counterpart/,
    );
  });

  it("is rejected if it is truncated, too long, or has wrong numbers", async () => {
    const changed = (at: number, value: bigint) => {
      const bytes = Buffer.from(whole);
      bytes.writeBigUInt64LE(value, at);
      return bytes;
    };
    const negative = cimatrixBytes(new Map([[module, Float32Array.of(-1)]]));
    const cases: [Buffer, RegExp][] = [
      ...Array.from({ length: whole.length }, (_, i): [Buffer, RegExp] => [
        whole.subarray(0, i),
        /it ends after \d+ bytes/,
      ]),
      [Buffer.concat([whole, Buffer.alloc(3)]), /3 bytes follow its last entry/],
      [changed(0, 0n), /its number of entries is 0; expected 1 to/],
      [changed(8, 1n << 60n), /the length of name 0 is \d+; expected/],
      [changed(16 + module.length, 1n << 62n), /the number of values of "model\.layers\.3\.self_attn\.q_proj" is/],
      [negative, /has the value -1; expected numbers/],
    ];
    for (const [bytes, message] of cases) {
      writeFileSync(target, bytes);
      await assert.rejects(readImportance(target), { code: "config_invalid", message });
    }
  });
});
