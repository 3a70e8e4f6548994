// Fuzz test of the GGUF reader: damages the header of a small model in thousands of ways. GGUF_FUZZ_ROUNDS sets the number of
// rounds, GGUF_FUZZ_SEED the seed.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { readModelMetadata } from "../../../../engines/files/gguf/metadata.ts";
import { readTensorTable, type TensorTable } from "../../../../engines/files/gguf/tensors.ts";
import { findArchitecture } from "../../../../engines/wasm/graph/architectures/registry.ts";
import { readHyperparameters } from "../../../../engines/wasm/graph/hyperparameters.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";
import { inTemporaryFolder } from "./gguf-bytes.ts";

const rounds = Number(process.env.GGUF_FUZZ_ROUNDS ?? 2_000);
const seed = Number(process.env.GGUF_FUZZ_SEED ?? 1);
/** Maximum CPU time of a round in ms. Wall-clock time would depend on how busy the machine is. */
const maxRoundMs = 100;
const maxGrowthBytes = 64 * 1024 * 1024;

const keys = [
  "general.architecture",
  "llama.block_count",
  "llama.embedding_length",
  "llama.attention.head_count",
  "llama.attention.layer_norm_rms_epsilon",
  "tokenizer.ggml.tokens",
  "tokenizer.ggml.token_type",
  "tokenizer.chat_template",
];
const hugeNumbers = [0n, 1n, 7n, 255n, 2n ** 20n, 2n ** 31n, 2n ** 32n - 1n, 2n ** 40n, 2n ** 53n, 2n ** 63n, -1n];

/** Byte positions of the numbers in the file that state a length, a type or an offset. */
interface Fields {
  readonly headBytes: number;
  /** Positions of 64-bit lengths, counts and dimensions. */
  readonly lengths: readonly number[];
  /** Positions of 32-bit numbers: magic number, version, types of values and tensors, dimension counts. */
  readonly types: readonly number[];
  /** Positions of the 64-bit offsets of tensors. */
  readonly offsets: readonly number[];
  /** Positions of the tensor names; all have the same length. */
  readonly names: readonly number[];
}

function findFields(bytes: Buffer, { tensors }: TensorTable): Fields {
  const lengths = [8, 16];
  const types = [0, 4];
  for (const key of keys) {
    const at = bytes.indexOf(key);
    lengths.push(at - 8, at + key.length + 4, at + key.length + 8);
    types.push(at + key.length, at + key.length + 4);
  }
  const offsets: number[] = [];
  const names: number[] = [];
  let headBytes = 0;
  for (const { name, shape } of tensors.values()) {
    const at = bytes.indexOf(name);
    const dimensions = at + name.length;
    lengths.push(at - 8, ...shape.map((_, i) => dimensions + 4 + 8 * i));
    types.push(dimensions, dimensions + 4 + 8 * shape.length);
    offsets.push(dimensions + 8 + 8 * shape.length);
    if (name.length === "blk.0.attn_q.weight".length) names.push(at);
    headBytes = dimensions + 16 + 8 * shape.length;
  }
  return { headBytes, lengths, types, offsets, names };
}

type Random = (below: number) => number;

function seededRandom(from: number): Random {
  let state = from >>> 0;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
}

/** Damages `bytes` in one way. Returns the length of the damaged file, which may be truncated. */
function damage(bytes: Buffer, fields: Fields, random: Random): number {
  const one = <T>(list: readonly T[]): T => list[random(list.length)] as T;
  switch (random(7)) {
    case 0:
      for (let left = 1 + random(8); left > 0; left--) bytes[random(fields.headBytes)] = random(256);
      break;
    case 1:
      bytes.writeBigUInt64LE(BigInt.asUintN(64, one(hugeNumbers)), one(fields.lengths));
      break;
    case 2:
      bytes.writeUInt32LE(one([0, 1, 4, 5, 8, 9, 31, 43, 255, 0x03000000, 0xffffffff]), one(fields.types));
      break;
    case 3: {
      const [left, right] = [one(fields.offsets), one(fields.offsets)];
      const [first, second] = [bytes.readBigUInt64LE(left), bytes.readBigUInt64LE(right)];
      bytes.writeBigUInt64LE(second, left);
      // The offset often points to the middle of another tensor.
      bytes.writeBigUInt64LE(BigInt.asUintN(64, first + BigInt(random(3) * 32)), right);
      break;
    }
    case 4:
      bytes.writeBigUInt64LE(BigInt.asUintN(64, one(hugeNumbers)), one(fields.offsets));
      break;
    case 5: {
      const from = one(fields.names);
      bytes.copy(bytes, one(fields.names), from, from + "blk.0.attn_q.weight".length);
      break;
    }
    default:
      return random(2) === 0 ? random(fields.headBytes) : random(bytes.length);
  }
  return bytes.length;
}

/** Returns true if the file can be read, false if it is rejected with a specific error. Throws on any other error. */
async function survives(path: string, fileBytes: number): Promise<boolean> {
  const refused = (error: unknown) => {
    assert.ok(error instanceof ServerError, String(error));
    assert.ok(error.code === "model_file_invalid" || error.code === "unsupported", error.code);
    assert.ok(error.message.length < 1_000);
    return null;
  };
  await readModelMetadata(path).catch(refused);
  const table = await readTensorTable(path).catch(refused);
  if (!table) return false;
  let end = 0;
  for (const tensor of [...table.tensors.values()].sort((a, b) => a.offset - b.offset)) {
    assert.ok(tensor.offset >= end && tensor.bytes > 0, tensor.name);
    end = tensor.offset + tensor.bytes;
  }
  assert.ok(end <= fileBytes);
  try {
    const architecture = findArchitecture(String(table.fields.get("general.architecture")));
    const { ropes } = readHyperparameters(architecture, table, { always: null, short: null, long: null });
    for (const { frequencies } of ropes) assert.ok(frequencies.every((one) => one > 0 && Number.isFinite(one)));
  } catch (error) {
    refused(error);
  }
  return true;
}

describe("a damaged model file", () => {
  it(`is read or rejected, quickly and in little memory, ${rounds} times`, () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      await writeTinyModel(path, { seed: 1, layers: 1, width: 32, heads: 1, vocabularySize: 272, weights: "Q4_0" });
      const whole = await readFile(path);
      const fields = findFields(whole, await readTensorTable(path));
      const random = seededRandom(seed);
      const peakBefore = process.resourceUsage().maxRSS;
      let read = 0;
      for (let round = 0; round < rounds; round++) {
        const bytes = Buffer.from(whole);
        let length = bytes.length;
        for (let left = 1 + random(3); left > 0; left--) length = Math.min(length, damage(bytes, fields, random));
        await writeFile(path, bytes.subarray(0, length));
        const started = process.cpuUsage();
        const survived = await survives(path, length).catch((error) => {
          throw new Error(`round ${round} of seed ${seed}: ${error.message}`, { cause: error });
        });
        if (survived) read++;
        const { user, system } = process.cpuUsage(started);
        assert.ok((user + system) / 1000 < maxRoundMs, `round ${round} of seed ${seed} took ${user + system} us`);
      }
      assert.ok(read > rounds / 50 && read < rounds / 2, `${read} of ${rounds} were read`);
      assert.ok((process.resourceUsage().maxRSS - peakBefore) * 1024 < maxGrowthBytes);
    }));
});
