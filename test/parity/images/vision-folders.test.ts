// Images with checkpoints: the vision parts of generated folders of Hugging Face's format, converted to projector files, against
// the embeddings that transformers computes from the same folders (transformers-reference.py).
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { convert } from "../../../engines/quantization/conversion/conversion.ts";
import { planProjector } from "../../../engines/quantization/conversion/plan-projector.ts";
import { ImageEncoder } from "../../../engines/wasm/vision/image-encoder.ts";
import {
  folderTile,
  type VisionClassName,
  visionClasses,
  writeVisionFolder,
} from "../../fixtures/images/vision-folder.ts";

interface Sampled {
  readonly step: number;
  readonly range: number;
  readonly values: readonly number[];
}

/** Largest difference as a share of the range. */
const tolerance = 0.005;
const source = new URL("../../../../test/fixtures/images/transformers-references.json", import.meta.url);
const references = JSON.parse(readFileSync(source, "utf8")) as Record<VisionClassName, Sampled>;
const root = mkdtempSync(join(tmpdir(), "troupe-vision-folders-"));
after(() => rmSync(root, { recursive: true, force: true }));

describe("the vision part of a checkpoint", () => {
  for (const name of visionClasses) {
    it(`gives the embeddings of transformers: ${name}`, async () => {
      const folder = join(root, name);
      await writeVisionFolder(folder, name);
      const target = join(root, `${name}.gguf`);
      const conversion = await planProjector(folder, { overrides: {}, floatType: null });
      await convert(conversion, { target, threads: 1 });
      const encoder = await ImageEncoder.load(target, 1);
      try {
        const embeddings = encoder.encode(folderTile());
        const { step, range, values } = references[name];
        assert.equal(Math.ceil(embeddings.length / step), values.length);
        const worst = Math.max(...values.map((value, i) => Math.abs(value - (embeddings[i * step] as number)))) / range;
        assert.ok(worst <= tolerance, `differs by ${(100 * worst).toFixed(3)} % of the range`);
      } finally {
        encoder.dispose();
      }
    });
  }
});
