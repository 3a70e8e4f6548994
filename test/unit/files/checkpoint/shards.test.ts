// Checkpoint shards: every tensor must be in exactly one file, and the index must match the files.
import assert from "node:assert/strict";
import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { readModelTensors } from "../../../../engines/files/safetensors/shards.ts";
import { inTemporaryFolder, invalidFile } from "../gguf/gguf-bytes.ts";
import { floats, type StoredTensors, safetensors } from "./stored-checkpoint.ts";

const [first, second] = ["model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"] as const;
const index = (map: Record<string, unknown>) => ({ weight_map: map });

async function read(files: Readonly<Record<string, StoredTensors | Buffer>>, map: Record<string, unknown> | null) {
  return await inTemporaryFolder(async (folder) => {
    for (const [name, content] of Object.entries(files)) {
      await writeFile(join(folder, name), Buffer.isBuffer(content) ? content : safetensors(content));
    }
    return await readModelTensors(folder, map);
  });
}

describe("the safetensors of a model", () => {
  const shards = { [first]: { a: floats([2, 3]) }, [second]: { b: floats([4]) } };

  it("are one file, or shards with or without an index", async () => {
    for (const [files, map] of [
      [{ "model.safetensors": { a: floats([2, 3]), b: floats([4]) } }, null],
      [shards, null],
      [shards, index({ a: first, b: second })],
    ] as const) {
      const { tensors } = await read(files, map);
      assert.deepEqual(
        [...tensors.values()].map(({ name, shape }) => [name, shape]),
        [
          ["a", [2, 3]],
          ["b", [4]],
        ],
      );
    }
  });

  it("are rejected with the name of a missing file", async () => {
    const one = { [first]: shards[first]! };
    await assert.rejects(read(one, index({ a: first, b: second })), invalidFile(new RegExp(`${second} is missing`)));
    await assert.rejects(read(one, null), invalidFile(/1 of the 2 files/));
    await assert.rejects(read({}, null), invalidFile(/0 of the 1 files/));
  });

  it("are rejected with the name of a tensor if the index and the files differ", async () => {
    const more = { [first]: { a: floats([2]), x: floats([2]) } };
    await assert.rejects(read(more, index({ a: first })), invalidFile(/lacks "x", which is in/));
    await assert.rejects(read(shards, index({ a: first, b: first, c: second })), invalidFile(/"b" is in/));
    await assert.rejects(read(shards, index({ a: first, b: second, c: second })), invalidFile(/"c" is in .* no file/));
    const doubled = { [first]: { a: floats([2]) }, [second]: { a: floats([2]) } };
    await assert.rejects(read(doubled, index({ a: first, b: second })), invalidFile(/"a" is also in/));
  });

  it("are never read from outside the folder", async () => {
    for (const name of ["../secret.safetensors", "/etc/passwd", "a\\b.safetensors", 7]) {
      await assert.rejects(read(shards, index({ a: name })), invalidFile(/weight_map/));
    }
  });

  it("are refused if the size of a tensor is not that of its numbers", async () => {
    const short = { a: { type: "F32", shape: [2], bytes: new Uint8Array(4) } };
    await assert.rejects(
      read({ "model.safetensors": short }, null),
      invalidFile(/"a" has 4 bytes; expected 2 numbers/),
    );
  });

  it("are refused if they are folders", async () => {
    await inTemporaryFolder(async (folder) => {
      await mkdir(join(folder, "model.safetensors"));
      await assert.rejects(readModelTensors(folder, null), invalidFile(/is not a file|cannot be opened/));
    });
  });
});
