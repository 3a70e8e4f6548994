import assert from "node:assert/strict";
import { stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { GGMLQuantizationType } from "@huggingface/gguf";
import { readTensorTable, tensorTypes } from "../../../../engines/files/gguf/tensors.ts";
import { writeTinyModel } from "../../../fixtures/models/tiny-gguf.ts";
import {
  type GgufBytes,
  ggufBytes,
  inTemporaryFolder,
  invalidFile,
  type TensorBytes,
  u32,
  u64,
  withFile,
} from "./gguf-bytes.ts";

const f32 = 0;
const q4 = 2;
const f16 = 1;
const u8List = Buffer.concat([u32(9), u32(0)]);

/** Returns a tensor of 64 bytes, with the given changes. */
function tensor(changes: Partial<TensorBytes> = {}): TensorBytes {
  return { name: "a", type: f32, shape: [16], offset: 0, ...changes };
}

function refuses(parts: GgufBytes, words: RegExp): Promise<void> {
  return withFile(ggufBytes({ dataBytes: 128, ...parts }), (path) =>
    assert.rejects(readTensorTable(path), invalidFile(words)),
  );
}

describe("tensor table", () => {
  it("gives the position, type and size of each tensor", () =>
    withFile(
      ggufBytes({
        pairs: [["general.architecture", "llama"]],
        tensors: [
          tensor({ name: "rows", type: q4, shape: [64, 3] }),
          tensor({ name: "cube", type: f16, shape: [4, 2, 2], offset: 128 }),
          tensor({ name: "one", shape: [], offset: 160 }),
        ],
        dataBytes: 164,
      }),
      async (path) => {
        const { files, tensors, fields } = await readTensorTable(path);
        const start = (await stat(path)).size - 164;
        assert.equal(start % 32, 0);
        assert.deepEqual(files, [path]);
        assert.deepEqual(
          [...tensors.values()],
          [
            { name: "rows", type: q4, shape: [64, 3], file: 0, offset: start, bytes: 6 * 18 },
            { name: "cube", type: f16, shape: [4, 2, 2], file: 0, offset: start + 128, bytes: 32 },
            { name: "one", type: f32, shape: [], file: 0, offset: start + 160, bytes: 4 },
          ],
        );
        assert.equal(fields.get("general.architecture"), "llama");
      },
    ));

  it("lists the tensors of a generated model back to back, up to the end of its file", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "tiny.gguf");
      await writeTinyModel(path, { seed: 1, layers: 1, weights: "Q4_1" });
      const { tensors, fields } = await readTensorTable(path);
      let end = [...tensors.values()][0]?.offset;
      for (const { offset, bytes } of tensors.values()) {
        assert.equal(offset, end);
        end = offset + Math.ceil(bytes / 32) * 32;
      }
      assert.equal(end, (await stat(path)).size);
      assert.ok(![...fields.keys()].some((key) => key.startsWith("tokenizer.")));
    }));

  it("uses the file's own alignment", () =>
    withFile(
      ggufBytes({ pairs: [["general.alignment", 256]], tensors: [tensor()], alignment: 256, dataBytes: 64 }),
      async (path) => assert.equal((await readTensorTable(path)).tensors.get("a")?.offset, 256),
    ));

  it("reads the older version too, and a file without tensors", () =>
    withFile(ggufBytes({ version: 2 }), async (path) => assert.equal((await readTensorTable(path)).tensors.size, 0)));

  it("knows the number types by the names and numbers of the format", () => {
    for (const [type, { name, blockLength, blockBytes }] of tensorTypes) {
      // The library's enum lacks the newest two types.
      if (type < 40) assert.equal(GGMLQuantizationType[type], name);
      assert.ok(Number.isInteger(blockLength) && Number.isInteger(blockBytes), name);
    }
    for (const removed of [4, 5, 31, 32, 33, 36, 37, 38]) assert.ok(!tensorTypes.has(removed));
  });

  it("refuses files that are not GGUF, of another version or for big-endian machines", async () => {
    await withFile(Buffer.from("PK\x03\x04 something"), (path) =>
      assert.rejects(readTensorTable(path), invalidFile(/starts with "GGUF"/)),
    );
    for (const version of [0, 1, 4]) await refuses({ version }, new RegExp(`version ${version};`));
    for (const version of [0x02000000, 0x03000000]) await refuses({ version }, /big-endian/);
  });

  it("rejects counts that the file has no room for, before using them", async () => {
    for (const count of [10_000, 2 ** 40, 2n ** 64n - 1n]) {
      await refuses({ tensorCount: count }, /tensors behind byte .* incomplete/);
      await refuses({ pairCount: count }, /key\/value pairs behind byte .* incomplete/);
      await refuses(
        { pairs: [["list", Buffer.concat([u8List, u64(count)])]] },
        /list values behind byte .* incomplete/,
      );
    }
  });

  it("refuses counts that no model has, however large the file", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "model.gguf");
      const refusesSparse = async (parts: GgufBytes, words: RegExp) => {
        await writeFile(path, ggufBytes(parts));
        await truncate(path, 2 ** 36);
        const before = process.memoryUsage().rss;
        await assert.rejects(readTensorTable(path), invalidFile(words));
        assert.ok(process.memoryUsage().rss - before < 2 ** 28);
      };
      await refusesSparse({ tensorCount: 65_537 }, /65537 tensors/);
      await refusesSparse({ pairCount: 65_537 }, /65537 key/);
      await refusesSparse({ pairs: [["list", Buffer.concat([u8List, u64(2 ** 30)])]] }, /more than 4194304 values/);
      await refusesSparse({ pairs: [["text", Buffer.concat([u32(8), u64(2 ** 30)])]] }, /does not end within/);
      await refusesSparse({ tensors: [tensor({ type: 99 })] }, /type 99/);
    }));

  it("rejects impossible shapes", async () => {
    await refuses({ tensors: [tensor({ shape: [1, 1, 1, 1, 1] })] }, /5 dimensions/);
    for (const shape of [[0], [16, 0], [2n ** 63n], [2 ** 30, 2 ** 30], [2n ** 53n + 1n, 1]]) {
      await refuses({ tensors: [tensor({ shape })] }, /1 to 2\^53/);
    }
    await refuses({ tensors: [tensor({ type: q4, shape: [48] })] }, /rows of 48 values.*Q4_0 takes multiples of 32/);
    for (const type of [4, 31, 43, 2 ** 31])
      await refuses({ tensors: [tensor({ type })] }, new RegExp(`type ${type},`));
  });

  it("rejects tensors at invalid positions", async () => {
    await refuses({ tensors: [tensor({ offset: 8 })] }, /not a multiple of 32/);
    await refuses({ tensors: [tensor(), tensor({ name: "b", offset: 32 })] }, /"a" and tensor "b" overlap/);
    await refuses({ tensors: [tensor({ name: "b", offset: 32 }), tensor()] }, /"a" and tensor "b" overlap/);
    await refuses({ tensors: [tensor({ offset: 96 })] }, /takes bytes .* incomplete/);
    await refuses({ tensors: [tensor({ offset: 2n ** 64n - 32n })] }, /incomplete/);
    await refuses({ tensors: [tensor(), tensor({ offset: 64 })] }, /"a" twice/);
  });

  it("rejects duplicate keys and invalid alignments", async () => {
    await refuses({ pairs: Array(2).fill(["general.name", "x"]) }, /"general.name" twice/);
    for (const alignment of [0, 48, 2 ** 31, "32"]) {
      await refuses({ pairs: [["general.alignment", alignment]] }, /power of two/);
    }
  });

  it("truncates what it quotes from a damaged file", async () => {
    const name = "x".repeat(100_000);
    await refuses({ tensors: [tensor({ name, type: 99 })] }, /^.{0,400}$/);
    await refuses({ pairs: [["general.alignment", name]] }, /^.{0,400}$/);
  });

  it("reports a truncated header, wherever it ends", async () => {
    const whole = ggufBytes({ pairs: [["general.name", "x"]], tensors: [tensor()], dataBytes: 64 });
    for (let length = 0; length < whole.length; length += 5) {
      await withFile(whole.subarray(0, length), (path) =>
        assert.rejects(readTensorTable(path), invalidFile(/incomplete/), `cut at ${length}`),
      );
    }
  });
});

describe("tensor table of a split model", () => {
  const shardName = (index: number, count = 2) => `m-0000${index + 1}-of-0000${count}.gguf`;

  function shard(index: number, changes: GgufBytes & { count?: number; no?: number } = {}): Buffer {
    const { count = 2, no = index, pairs = [], ...rest } = changes;
    return ggufBytes({
      pairs: [["split.count", count], ["split.no", no], ["split.tensors.count", 2], ...pairs],
      tensors: [tensor({ name: `t${index}` })],
      dataBytes: 64,
      ...rest,
    });
  }

  async function withShards(shards: readonly (Buffer | null)[], use: (folder: string) => Promise<void>): Promise<void> {
    await inTemporaryFolder(async (folder) => {
      for (const [index, bytes] of shards.entries()) if (bytes) await writeFile(join(folder, shardName(index)), bytes);
      await use(folder);
    });
  }

  it("joins the files, whichever of them is given", () =>
    withShards([shard(0, { pairs: [["general.name", "joined"]] }), shard(1)], async (folder) => {
      for (const named of [0, 1]) {
        const { files, tensors, fields } = await readTensorTable(join(folder, shardName(named)));
        assert.deepEqual(
          files,
          [0, 1].map((index) => join(folder, shardName(index))),
        );
        assert.deepEqual(
          [...tensors.values()].map(({ name, file }) => [name, file]),
          [
            ["t0", 0],
            ["t1", 1],
          ],
        );
        assert.equal(fields.get("general.name"), "joined");
      }
    }));

  it("rejects a model whose files are missing, mixed up or named differently", async () => {
    const refusesShards = (shards: readonly (Buffer | null)[], words: RegExp, named = 0) =>
      withShards(shards, (folder) =>
        assert.rejects(readTensorTable(join(folder, shardName(named))), invalidFile(words)),
      );
    await refusesShards([shard(0), null], /split over 2 files.*00002-of-00002.gguf, but there is no such file/);
    await refusesShards([shard(0), Buffer.from("GGUF")], /split over 2 files.*incomplete/);
    await refusesShards([shard(0), shard(1, { count: 3 })], /split.count 3/);
    await refusesShards([shard(0), shard(1, { no: 0 })], /split.no is 0/);
    await refusesShards([shard(0), ggufBytes({})], /split.no is missing/);
    await refusesShards([shard(0, { count: 3 }), shard(1)], /split.count is 3.*names they were published with/);
    await refusesShards([shard(0), shard(1, { tensors: [tensor({ name: "t0" })] })], /"t0" twice/);
    await refusesShards([shard(0), shard(1, { tensors: [] })], /tensors.count is 2, but its files list 1/);
    await withFile(shard(0), (path) => assert.rejects(readTensorTable(path), invalidFile(/should end like/)));
  });

  it("treats a file that is named like a shard as complete unless its metadata says otherwise", () =>
    inTemporaryFolder(async (folder) => {
      const path = join(folder, "m-00001-of-00009.gguf");
      await writeFile(path, ggufBytes({ tensors: [tensor()], dataBytes: 64 }));
      assert.deepEqual((await readTensorTable(path)).files, [path]);
    }));
});
