// UQFF files: weights that are written and read back equal those of a GGUF file with the same types, damaged files are rejected with
// a specific error, and files are found by name.
import assert from "node:assert/strict";
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { openCheckpoint } from "../../../engines/files/checkpoint/checkpoint.ts";
import { readTensorTable } from "../../../engines/files/gguf/tensors.ts";
import { chooseShards } from "../../../engines/files/hub/choice/uqff-choice.ts";
import { findLocalModel } from "../../../engines/files/hub/local-model.ts";
import { readUqff } from "../../../engines/files/uqff/uqff-files.ts";
import { convert } from "../../../engines/quantization/conversion/conversion.ts";
import { type ModelOptions, openModelSource, planModel } from "../../../engines/quantization/conversion/plan-model.ts";
import { planUqff } from "../../../engines/quantization/conversion/plan-uqff.ts";
import { parseLevel } from "../../../engines/quantization/plan/levels.ts";
import { checkValues } from "../../../engines/quantization/rows/check-values.ts";
import { createRowReader } from "../../../engines/quantization/rows/rows.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { writeSmallCheckpoint } from "../../fixtures/checkpoints/small-checkpoint.ts";
import {
  caseContent,
  floats,
  type StoredTensor,
  safetensors,
  writeFolder,
} from "../files/checkpoint/stored-checkpoint.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-uqff-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const nothing: ModelOptions = {
  ...{ level: null, organization: "default", topology: [], floatType: null },
  ...{ importance: null, overrides: {}, tokenizer: null, slice: null, architecture: null, queryHeads: 1 },
};
const silent = () => {};
const levelOf = (name: string) => ({ ...nothing, level: parseLevel(name, "isq") });

/** Converts the checkpoint in `from` to UQFF in `into`, next to copies of its config.json. Returns the path of the first shard. */
async function writeUqff(from: string, into: string, level: string): Promise<string> {
  await mkdir(into, { recursive: true });
  const { files } = await planUqff(join(from, "config.json"), levelOf(level), {
    stem: "w",
    producer: "test",
    warn: silent,
  });
  for (const [name, conversion] of files) await convert(conversion, { target: join(into, name), threads: 1 });
  copyFileSync(join(from, "config.json"), join(into, "config.json"));
  return join(into, "w-0.uqff");
}

/** Returns the bytes and the type of each tensor of a GGUF file. */
async function tensorBytes(path: string): Promise<Map<string, string>> {
  const { tensors } = await readTensorTable(path);
  const file = readFileSync(path);
  return new Map(
    [...tensors].map(([name, { type, shape, offset, bytes }]) => {
      return [name, `${type} ${shape} ${file.subarray(offset, offset + bytes).toString("base64")}`];
    }),
  );
}

describe("weights in UQFF", () => {
  for (const level of ["Q8_0", "Q4_0", "Q5_1", "F16", "BF16"]) {
    it(`become the same GGUF file as the checkpoint that they were written from: ${level}`, async () => {
      const source = join(folder, level, "source");
      await writeSmallCheckpoint(source);
      const direct = join(folder, level, "direct.gguf");
      await convert((await planModel(join(source, "config.json"), levelOf(level), silent)).conversion, {
        target: direct,
        threads: 1,
      });
      const first = await writeUqff(source, join(folder, level, "uqff"), level);
      copyFileSync(join(source, "tokenizer.json"), join(folder, level, "uqff", "tokenizer.json"));
      const warnings: string[] = [];
      const planned = await planModel(first, nothing, (message) => warnings.push(message));
      const again = join(folder, level, "again.gguf");
      await convert(planned.conversion, { target: again, threads: 1 });
      assert.deepEqual(await tensorBytes(again), await tensorBytes(direct));
      assert.deepEqual(warnings, []);
    });
  }

  for (const name of [
    "mixtral",
    "qwen3moe",
    "qwen2",
    "phi3",
    "gpt-oss",
    "llama4",
    "qwen3next",
    "deepseek-v3",
    "falcon-h1",
  ]) {
    it(`keep all tensors of an architecture: ${name}`, async () => {
      const { config, tensors } = caseContent(name);
      const source = join(folder, name, "source");
      // Values small enough for 16-bit floats.
      const small = Object.entries(tensors).map(([key, { shape }]) => [
        key,
        floats(shape, (i) => Math.sin(i + key.length)),
      ]);
      await writeFolder(source, config, Object.fromEntries(small));
      const first = await writeUqff(source, join(folder, name, "uqff"), "Q8_0");
      const [plain, read] = [
        await openCheckpoint(source),
        await openCheckpoint(join(folder, name, "uqff"), { uqff: first }),
      ];
      const listed = ({ tensors }: typeof plain) =>
        tensors.map(({ name, shape, isMatrix }) => `${name} ${shape} ${isMatrix}`).sort();
      assert.deepEqual(listed(read), listed(plain));
      const [expected, found] = [createRowReader(plain.files), createRowReader(read.files)];
      for (const { name, rows } of plain.tensors) {
        const [one, other] = [new Float32Array(rows.rows * rows.columns), new Float32Array(rows.rows * rows.columns)];
        expected.read(rows, 0, rows.rows, one);
        found.read(read.tensors.find((tensor) => tensor.name === name)!.rows, 0, rows.rows, other);
        const worst = one.reduce((most, value, at) => Math.max(most, Math.abs(value - (other[at] ?? 0))), 0);
        const largest = one.reduce((most, value) => Math.max(most, Math.abs(value)), 1);
        assert.ok(worst / largest < 0.01, `${name} differs by ${worst}`);
      }
      expected.close();
      found.close();
    });
  }

  it("have rows of queries and keys that are in the order of GGUF already, if config.json says so", async () => {
    const source = join(folder, "turned", "source");
    await writeSmallCheckpoint(source);
    const first = await writeUqff(source, join(folder, "turned", "uqff"), "Q8_0");
    const kindOf = async () => {
      const { tensors } = await openCheckpoint(join(folder, "turned", "uqff"), { uqff: first });
      return tensors.find(({ name }) => name === "blk.0.attn_q.weight")?.rows.kind;
    };
    assert.equal(await kindOf(), "swapped");
    const path = join(folder, "turned", "uqff", "config.json");
    writeFileSync(
      path,
      JSON.stringify({ ...JSON.parse(readFileSync(path, "utf8")), _mistralrs_qk_rope_layout: "adjacent" }),
    );
    assert.equal(await kindOf(), "blocks");
  });

  it("reject levels that UQFF does not have, with a specific error", async () => {
    const source = join(folder, "levels");
    await writeSmallCheckpoint(source);
    await assert.rejects(
      writeUqff(source, join(folder, "levels-uqff"), "IQ4_NL"),
      /UQFF has no IQ4_NL.*choose a level of F32, F16/,
    );
  });

  it("reject settings that have no effect on them, and use the specified architecture", async () => {
    const source = join(folder, "settings");
    await writeSmallCheckpoint(source);
    const planned = (changes: Partial<ModelOptions>) => {
      const options = { ...levelOf("Q8_0"), ...changes };
      return planUqff(join(source, "config.json"), options, { stem: "w", producer: "test", warn: silent });
    };
    const slice = { name: "half", feedForward: [8], skipped: [] };
    await assert.rejects(planned({ slice }), { code: "config_invalid", param: "matformer_slice_name" });
    await assert.rejects(planned({ queryHeads: 4 }), { code: "config_invalid", param: "gqa" });
    await assert.rejects(planned({ architecture: "none" }), { code: "config_invalid", param: "arch" });
  });
});

/** Sample layers with a 2 x 64 matrix in each format, built by hand from the documented layouts. */
const layers: Readonly<Record<string, { parts: Record<string, StoredTensor>; values: (i: number) => number }>> = {
  afq: {
    // 3-bit codes (i % 8), scale 0.5, bias -1, in groups of 32.
    parts: {
      ...{ "weight.format": bytes([], [4]), "weight.bits": bytes([], [3]), "weight.group_size": bytes([], [32]) },
      weight: words(
        [2, 6],
        packed(128, 3, (i) => i % 8),
      ),
      ...{ "weight.scales": floats([2, 2], () => 0.5), "weight.biases": floats([2, 2], () => -1) },
    },
    values: (i) => (i % 8) * 0.5 - 1,
  },
  hqq: {
    // Value i has the scale i % 4 + 1. The first 64 values are in the upper halves of the bytes.
    parts: {
      ...{ "weight.format": bytes([], [2]), "weight.bits": bytes([], [4]), "weight.axis": bytes([], [0]) },
      ...{ "weight.round_zeros": bytes([], [0]), "weight.channel_wise": bytes([], [1]) },
      ...{
        "weight.group_size": words([], [64]),
        "weight.optimization_steps": words([], [10]),
        "weight.shape": words([2], [2, 64]),
      },
      weight: bytes(
        [16, 4],
        Array.from({ length: 64 }, (_, i) => ((i % 16) << 4) | ((i + 3) % 16)),
      ),
      ...{ "weight.scales": floats([1, 4], (i) => i + 1), "weight.zeros": floats([1, 4], () => 2) },
    },
    values: (i) => ((i < 64 ? i % 16 : (i - 64 + 3) % 16) - 2) * ((i % 4) + 1),
  },
  fp8: {
    // As float8, 0x38 is 1 and 0xc0 is -2.
    parts: {
      ...{ "weight.format": bytes([], [3]), "weight.dtype": words([], [6]) },
      weight: {
        type: "F8_E4M3",
        shape: [2, 64],
        bytes: Uint8Array.from({ length: 128 }, (_, i) => (i % 2 ? 0xc0 : 0x38)),
      },
      "weight.dequant_w_scale": floats([], () => 0.25),
      ...{ "weight.dequant_x_scale": floats([], () => 7), "weight.quant_scale": floats([], () => 9) },
    },
    values: (i) => (i % 2 ? -0.5 : 0.25),
  },
  f8q8: {
    // As float8, the scale byte 0x7d is 416. F8Q8 stores scales in units of 1/416, so the scale is 1.
    parts: {
      ...{ "weight.format": bytes([], [5]), "weight.num_blocks": words([], [4]), "weight.shape": words([2], [2, 64]) },
      weight: bytes(
        [132],
        Array.from({ length: 132 }, (_, i) => (i % 33 === 0 ? 0x7d : (i % 33) - 17)),
      ),
    },
    values: (i) => (i % 32) - 16,
  },
  mxfp4: {
    // Codes 2 (1.0) and 12 (-2.0) with a scale of 2.
    parts: {
      "weight.format": bytes([], [6]),
      ...{ weight: bytes([2, 32], Array(64).fill(0xc2)), "weight.scales": bytes([2, 2], Array(4).fill(128)) },
    },
    values: (i) => (i % 2 ? -4 : 2),
  },
  unquant: {
    parts: { "weight.format": bytes([], [1]), weight: floats([2, 64], (i) => i / 3) },
    values: (i) => Math.fround(i / 3),
  },
};

function bytes(shape: number[], values: readonly number[]): StoredTensor {
  return { type: "U8", shape, bytes: Uint8Array.from(values) };
}

function words(shape: number[], values: readonly number[]): StoredTensor {
  return { type: "U32", shape, bytes: new Uint8Array(Uint32Array.from(values).buffer) };
}

/** Packs integers as a bit stream in 32-bit words. */
function packed(count: number, bits: number, value: (i: number) => number): number[] {
  let stream = 0n;
  for (let i = 0; i < count; i++) stream |= BigInt(value(i)) << BigInt(i * bits);
  return Array.from({ length: (count * bits) / 32 }, (_, i) => Number((stream >> BigInt(32 * i)) & 0xffffffffn));
}

const versions = {
  "uqff.version.major": words([], [1]),
  "uqff.version.minor": words([], [2]),
  "uqff.version.patch": words([], [0]),
};

async function writeLayer(
  into: string,
  parts: Readonly<Record<string, StoredTensor>>,
  changes: object = {},
): Promise<string> {
  await mkdir(into, { recursive: true });
  const named = Object.entries(parts).map(([name, tensor]) => [`a.b.${name}`, tensor]);
  writeFileSync(join(into, "w-0.uqff"), safetensors({ ...versions, ...changes, ...Object.fromEntries(named) }));
  writeFileSync(join(into, "residual.safetensors"), safetensors({ "a.norm.weight": floats([4]) }));
  return join(into, "w-0.uqff");
}

describe("a layer of UQFF", () => {
  for (const [format, { parts, values }] of Object.entries(layers)) {
    it(`has the values of its format: ${format}`, async () => {
      const { layers: found, files, others } = await readUqff(await writeLayer(join(folder, `layer-${format}`), parts));
      const [layer] = found;
      assert.ok(layer);
      assert.deepEqual([layer.key, layer.format, layer.shape, others.length], ["a.b", format, [2, 64], 1]);
      const read = new Float32Array(128);
      const reader = createRowReader(files);
      reader.read(layer.rows, 0, 2, read);
      const second = new Float32Array(64);
      reader.read(layer.rows, 1, 1, second);
      reader.close();
      assert.deepEqual(
        [...read],
        Array.from({ length: 128 }, (_, i) => values(i)),
      );
      assert.deepEqual(second, read.slice(64));
    });
  }

  it("is rejected with a specific error if the file has another version or an unknown format", async () => {
    const { parts } = layers.unquant!;
    const refusal = async (given: object, changes: object = {}) => {
      const path = await writeLayer(join(folder, "refused"), { ...parts, ...given }, changes);
      return await readUqff(path).then(
        () => "read",
        ({ code, message }: ServerError) => `${code}: ${message}`,
      );
    };
    assert.match(
      await refusal({}, { "uqff.version.minor": words([], [3]) }),
      /^unsupported: .*has version 1\.3\.0 of UQFF; 1\.0 to 1\.2 are read/,
    );
    assert.match(await refusal({}, { "uqff.version.major": words([], [0]) }), /^unsupported: .*has version 0\.2\.0/);
    assert.match(
      await refusal({ "weight.format": bytes([], [9]) }),
      /^unsupported: the layer "a\.b" .* has format 9; known are 0 gguf/,
    );
    const hqq = layers.hqq!.parts;
    assert.match(
      await refusal({ ...hqq, "weight.axis": bytes([], [1]) }),
      /^unsupported: .*HQQ with groups along dimension 1/,
    );
    assert.match(await refusal({ ...hqq, "weight.bits": bytes([], [2]) }), /^unsupported: .*HQQ of 2 bits/);
    assert.match(
      await refusal({ ...hqq, "weight.scales": floats([1, 8]) }),
      /^model_file_invalid: .*"a\.b\.weight\.scales" cannot be used: there are 8 scales/,
    );
    const { "weight.dtype": _, ...fp8 } = layers.fp8!.parts;
    assert.match(await refusal(fp8), /^model_file_invalid: .*"a\.b\.weight\.dtype" cannot be used: it is missing/);
  });

  it("before version 1.0 is refused with what to do", async () => {
    const into = join(folder, "old");
    await mkdir(into);
    writeFileSync(join(into, "q.uqff"), safetensors({ "0": bytes([3], [1, 2, 3]), "1": bytes([2], [1, 2]) }));
    writeFileSync(join(into, "residual.safetensors"), safetensors({ "a.norm.weight": floats([4]) }));
    await assert.rejects(
      readUqff(join(into, "q.uqff")),
      /version of UQFF before 1\.0.*make the file again with `troupe quantize`/,
    );
  });
});

describe("damaged files of UQFF", () => {
  it("are read or rejected with a specific error: 500 mutations", async () => {
    const source = join(folder, "fuzz", "source");
    await writeSmallCheckpoint(source, { layers: 1 });
    const first = await writeUqff(source, join(folder, "fuzz", "uqff"), "Q8_0");
    const whole = readFileSync(first);
    // Length of the part that most damage hits: the header and the small tensors after it. Other damage hits the end of the file.
    const headBytes = 8 + Number(whole.readBigUInt64LE(0)) + 400;
    const random = numbersFrom(7);
    let refused = 0;
    for (let round = 0; round < 500; round++) {
      const damaged = mutated(whole, headBytes, random);
      writeFileSync(first, damaged);
      const started = process.cpuUsage();
      try {
        const { files, tensors } = await openCheckpoint(join(folder, "fuzz", "uqff"), { uqff: first });
        for (const _ of checkValues(files, tensors));
      } catch (error) {
        assert.ok(error instanceof ServerError, `round ${round}: ${(error as Error).stack}`);
        assert.match(error.message, /uqff|config\.json/, `round ${round}`);
        refused++;
      }
      const { user, system } = process.cpuUsage(started);
      assert.ok((user + system) / 1000 < 400, `round ${round} took ${(user + system) / 1000} ms`);
    }
    assert.ok(refused > 300 && refused < 500, `${refused} were refused`);
  });
});

function mutated(whole: Buffer, headBytes: number, random: () => number): Buffer {
  const damaged = Buffer.from(whole);
  const kind = Math.floor(random() * 4);
  if (kind === 0) return damaged.subarray(0, Math.floor(random() * damaged.length));
  if (kind === 1) return Buffer.concat([damaged, Buffer.alloc(1 + Math.floor(random() * 8))]);
  const isTail = kind === 3;
  for (let i = 0; i < 1 + random() * 3; i++) {
    const at = isTail ? damaged.length - 1 - Math.floor(random() * 20) : Math.floor(random() * headBytes);
    damaged[at] = Math.floor(random() * 256);
  }
  return damaged;
}

/** Returns a generator of numbers in [0, 1) from a seed. */
function numbersFrom(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 32;
  };
}

describe("files of UQFF", () => {
  const names = ["q4k-0.uqff", "q4k-1.uqff", "q8_0-0.uqff", "afq4-0.uqff", "config.json", "residual.safetensors"];
  const choose = (wanted: string[], preferred: string[] = [], among = names) => {
    return chooseShards(among, { place: "x", wanted, preferred });
  };

  it("are found by a name, a type or a number of bits", () => {
    for (const name of ["q4k-0.uqff", "q4k-1.uqff", "q4k", "Q4_K", "4"])
      assert.deepEqual(choose([name]), ["q4k-0.uqff", "q4k-1.uqff"]);
    assert.deepEqual(choose(["8"]), ["q8_0-0.uqff"]);
    assert.deepEqual(choose(["4"], [], ["afq4-0.uqff", "q8_0-0.uqff"]), ["afq4-0.uqff"]);
    assert.deepEqual(choose([], ["Q5_K_M", "Q8_0"]), ["q8_0-0.uqff"]);
    assert.deepEqual(choose([], [], ["model.uqff"]), ["model.uqff"]);
  });

  it("are refused if none fits, if several do, or if a shard is missing", () => {
    assert.throws(
      () => choose(["q5k"]),
      /no UQFF file "q5k" in x; did you mean "q4k"\?: "afq4-0.uqff", "q4k-0.uqff", "q8_0-0.uqff"/,
    );
    assert.throws(() => choose([]), /several models in x; name one with from_uqff: "afq4-0.uqff"/);
    assert.throws(() => choose(["q4k-0.uqff", "q8_0-0.uqff"]), /names files of "q4k" and of "q8_0"/);
    assert.throws(
      () => choose(["q4k"], [], ["q4k-0.uqff", "q4k-2.uqff"]),
      /"q4k-0.uqff" in x expects "q4k-1.uqff" beside it/,
    );
  });

  it("are used for a folder without another model, and for their own path", async () => {
    const into = join(folder, "found");
    await mkdir(into);
    for (const name of names) writeFileSync(join(into, name), "");
    assert.equal(await findLocalModel(into, null, { fromUqff: ["8"] }), join(into, "q8_0-0.uqff"));
    assert.equal(await findLocalModel(into, null, { quantisations: ["Q4_K_M", "Q4_K"] }), join(into, "q4k-0.uqff"));
    assert.equal(await findLocalModel(join(into, "q4k-1.uqff"), null), join(into, "q4k-0.uqff"));
    await assert.rejects(findLocalModel(into, null), /several models in the directory/);
    rmSync(join(into, "residual.safetensors"));
    await assert.rejects(findLocalModel(into, null, { fromUqff: ["8"] }), /expects "residual.safetensors" beside it/);
  });

  it("cannot be specified for a model that is a GGUF file", async () => {
    const path = join(folder, "model.gguf");
    writeFileSync(path, "GGUF");
    await assert.rejects(
      findLocalModel(path, null, { fromUqff: ["4"] }),
      /from_uqff expects a folder or a name on the hub/,
    );
    await assert.rejects(
      openModelSource(
        join(folder, "none", "w-0.uqff"),
        { overrides: {}, tokenizer: null, slice: null, architecture: null, queryHeads: 1 },
        silent,
      ),
      ServerError,
    );
  });
});
