// Importance matrices that troupe saves, read by llama.cpp itself and by its Python package (gguf). The files have the format of
// llama.cpp's tools: two tensors for each matrix, the sums of squares and the counts, and the metadata fields of llama-imatrix.
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, it } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { writeImportance } from "../../engines/quantization/importance/importance-writer.ts";
import { nativeImportance } from "../fixtures/quantization/native-importance.ts";
import { pythonEnvironment } from "../server/python/environment.ts";

const requirements = fileURLToPath(
  new URL("../../../test/fixtures/checkpoints/unpack/requirements.txt", import.meta.url),
);
const script = `
import json, sys
from gguf import GGUFReader
reader = GGUFReader(sys.argv[1])
fields = {name: field.contents() for name, field in reader.fields.items() if name.startswith(("general.", "imatrix."))}
tensors = {one.name: [one.tensor_type.name, [int(n) for n in one.shape], one.data.reshape(-1).tolist()] for one in reader.tensors}
print(json.dumps({"fields": fields, "tensors": tensors}))
`;
const folder = mkdtempSync(join(tmpdir(), "troupe-importance-"));
after(() => rmSync(folder, { recursive: true, force: true }));

const path = join(folder, "saved.gguf");
const sums = [
  { name: "blk.0.attn_q.weight", squares: Float32Array.of(2, 4, 6), rows: Float32Array.of(2) },
  { name: "blk.0.ffn_up_exps.weight", squares: Float32Array.of(1, 2, 0, 0), rows: Float32Array.of(5, 0) },
];
before(() => writeImportance(path, sums, { dataset: "text.txt", chunkTokens: 512, chunks: 3 }));

it("llama.cpp reads a saved importance matrix", async (t) => {
  const read = await nativeImportance(path);
  if (read === null) return t.skip("the libraries of llama.cpp for this system do not read importance matrices");
  assert.deepEqual(read, {
    entries: {
      "blk.0.attn_q.weight": { sums: [2, 4, 6], counts: [2] },
      "blk.0.ffn_up_exps.weight": { sums: [1, 2, 0, 0], counts: [5, 0] },
    },
    ...{ datasets: 1, chunkCount: 3, chunkSize: 512 },
  });
});

it("the Python package gguf reads a saved importance matrix", async () => {
  const python = await pythonEnvironment(requirements);
  const { stdout } = await promisify(execFile)(python, ["-c", script, path]);
  assert.deepEqual(JSON.parse(stdout), {
    fields: {
      "general.type": "imatrix",
      "imatrix.datasets": ["text.txt"],
      "imatrix.chunk_count": 3,
      "imatrix.chunk_size": 512,
    },
    tensors: {
      "blk.0.attn_q.weight.in_sum2": ["F32", [3, 1], [2, 4, 6]],
      "blk.0.attn_q.weight.counts": ["F32", [1, 1], [2]],
      "blk.0.ffn_up_exps.weight.in_sum2": ["F32", [2, 2], [1, 2, 0, 0]],
      "blk.0.ffn_up_exps.weight.counts": ["F32", [1, 2], [5, 0]],
    },
  });
});
