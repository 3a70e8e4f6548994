// Excerpts of model files: the first layers with their weights unchanged, whatever the size of a tensor.
import assert from "node:assert/strict";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { writeExcerpt } from "../../../../engines/files/gguf/excerpt.ts";
import { readTensorTable } from "../../../../engines/files/gguf/tensors.ts";
import { ggufBytes, inTemporaryFolder } from "./gguf-bytes.ts";

const f32 = 0;
const columns = 1024;
const floatBytes = 4;

/**
 * Writes a model of two layers, whose first layer has one tensor of `layerBytes` bytes that end with the byte 7, to `path`. The file is
 * sparse.
 */
async function writeModel(path: string, layerBytes: number): Promise<void> {
  const embeddingBytes = columns * 4 * floatBytes;
  const rows = layerBytes / floatBytes / columns;
  const head = ggufBytes({
    pairs: [
      ["general.architecture", "llama"],
      ["llama.block_count", 2],
    ],
    tensors: [
      { name: "token_embd.weight", type: f32, shape: [columns, 4], offset: 0 },
      { name: "blk.0.ffn_up.weight", type: f32, shape: [columns, rows], offset: embeddingBytes },
      { name: "blk.1.ffn_up.weight", type: f32, shape: [columns, 1], offset: embeddingBytes + layerBytes },
    ],
  });
  const file = await open(path, "w");
  try {
    await file.write(head);
    const end = head.length + embeddingBytes + layerBytes;
    await file.write(Uint8Array.of(7), 0, 1, end - 1);
    await file.truncate(end + columns * floatBytes);
  } finally {
    await file.close();
  }
}

describe("excerpt of a model file", () => {
  // A test with 2 GiB, the most that Node.js reads at once, would write 2 GiB to the disk.
  it("copies a tensor that is larger than what is copied at once", async () => {
    await inTemporaryFolder(async (folder) => {
      const [path, target] = [join(folder, "model.gguf"), join(folder, "excerpt.gguf")];
      const layerBytes = 40 * 2 ** 20;
      await writeModel(path, layerBytes);
      await writeExcerpt(path, target, 1);
      const tensor = (await readTensorTable(target)).tensors.get("blk.0.ffn_up.weight");
      assert.equal(tensor?.bytes, layerBytes);
      const file = await open(target, "r");
      try {
        const { buffer } = await file.read(Buffer.alloc(layerBytes), 0, layerBytes, tensor.offset);
        const expected = Buffer.alloc(layerBytes);
        expected[layerBytes - 1] = 7;
        assert.ok(buffer.equals(expected));
      } finally {
        await file.close();
      }
    });
  });
});
