// Quantization compared with llama.cpp: our encoders have similar errors for every type, with and without
// importance, and our decoders return equal values for equal bytes.
import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import { tensorTypes } from "../../engines/files/gguf/tensors.ts";
import { BlockCodec } from "../../engines/quantization/codec/block-codec.ts";
import { encodableTypes } from "../../engines/quantization/codec/codec-types.ts";
import { realModel } from "../fixtures/models/models.ts";
import { type NativeCodec, openNativeCodec } from "../fixtures/quantization/native-codec.ts";
import {
  bytesOf,
  gaussianRows,
  heavyTailedRows,
  modelRows,
  type Rows,
  randomImportance,
  squaredError,
} from "../fixtures/quantization/rows.ts";

/** Maximum ratio of our error to llama.cpp's error without importance. With importance our error is never larger. */
const mostError = 1.01;
/** Error relative to the sum of squares, below which errors are not compared because they are float rounding. */
const negligible = 1e-11;
const columns = 1536;
const quantizedTypes = [...encodableTypes].filter((type) => type !== 0);

describe("encoding in the types of GGUF files", () => {
  const codec = BlockCodec.create();
  const inputs: Record<string, Rows> = {
    "Gaussian rows": gaussianRows(64, columns),
    "heavy-tailed rows": heavyTailedRows(64, columns),
  };
  let native: NativeCodec;
  before(async () => {
    native = await openNativeCodec();
    const { path, isReal } = await realModel();
    if (isReal) inputs["rows of the model"] = await modelRows(path, "blk.1.ffn_down.weight", 64);
  });

  for (const type of quantizedTypes) {
    const name = tensorTypes.get(type)?.name;
    for (const importance of [null, randomImportance(columns)]) {
      it(`has no larger errors than llama.cpp: ${name}${importance ? ", with importance" : ""}`, (t) => {
        for (const [what, rows] of Object.entries(inputs)) {
          const ours = new Uint8Array(bytesOf(type, rows.values.length));
          const theirs = new Uint8Array(ours.length);
          codec.encodeRows(type, rows.values, rows.columns, importance, ours);
          native.encode(type, rows.values, rows.columns, importance, theirs);
          const errors = [ours, theirs].map((bytes) => {
            const decoded = new Float32Array(rows.values.length);
            native.decode(type, bytes, decoded);
            return squaredError(rows, decoded, importance);
          });
          const [own = Number.NaN, other = Number.NaN] = errors;
          t.diagnostic(`${what}: ${(own / other).toFixed(4)}`);
          const floor = negligible * squaredError(rows, new Float32Array(rows.values.length), importance);
          assert.ok(own <= (importance ? 1 : mostError) * other + floor, `${what}: ${own} over ${other} of llama.cpp`);
        }
      });
    }

    it(`decodes the same values as llama.cpp: ${name}`, () => {
      const rows = inputs["heavy-tailed rows"] as Rows;
      const bytes = new Uint8Array(bytesOf(type, rows.values.length));
      codec.encodeRows(type, rows.values, rows.columns, null, bytes);
      const ours = new Float32Array(rows.values.length);
      const theirs = new Float32Array(rows.values.length);
      codec.decodeRows(type, bytes, rows.columns, ours);
      native.decode(type, bytes, theirs);
      const different = ours.findIndex((value, i) => value !== theirs[i]);
      assert.equal(different, -1, `value ${different} is ${ours[different]} over ${theirs[different]}`);
    });
  }
});
