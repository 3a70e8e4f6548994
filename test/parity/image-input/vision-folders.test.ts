// Image input of vision checkpoints: the vision parts of generated Hugging Face folders, converted to projector files, are
// compared with the embeddings that transformers computes from the same folders (transformers-reference.py). Audio embeddings
// are compared too, if the folder has an audio encoder. For whole models,
// the logits after a prompt with an image are compared too, on both engines.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { Batch, type PromptSpan } from "../../../engines/batch.ts";
import { tileGrid } from "../../../engines/image-input/image-tokens.ts";
import { openEngine } from "../../../engines/open-engine.ts";
import { convert } from "../../../engines/quantization/conversion/conversion.ts";
import { planProjector } from "../../../engines/quantization/conversion/plan-projector.ts";
import { AudioEncoder } from "../../../engines/wasm/audio/audio-encoder.ts";
import { ImageEncoder, type Tile } from "../../../engines/wasm/vision/image-encoder.ts";
import { tones } from "../../fixtures/audio-input/tiny-audio-model.ts";
import { checkpointValues, writeAsGguf } from "../../fixtures/checkpoints/checkpoint-model.ts";
import {
  folderTile,
  tileSizeOf,
  type VisionClassName,
  visionClasses,
  writeVisionFolder,
} from "../../fixtures/image-input/vision-folder.ts";
import {
  type LanguageKind,
  languageImage,
  languageKinds,
  languagePrompt,
  type Naming,
  writeLanguageFolder,
} from "../../fixtures/image-input/vision-language-folder.ts";
import { specOf } from "../../fixtures/models/models.ts";

interface Sampled {
  readonly step: number;
  readonly range: number;
  readonly values: readonly number[];
}

type References = Record<VisionClassName, Sampled & { readonly audio?: Sampled }> &
  Record<LanguageKind, Sampled & { readonly logits: Sampled }>;

/** Maximum difference of embeddings from those of transformers, as a fraction of their range. */
const tolerance = 0.005;
/**
 * Maximum difference of logits from those of transformers, as a fraction of their range. For comparison: exchanging rows and
 * columns in the positions of an image changes the logits by 3.6 %.
 */
const logitsTolerance = 0.002;
const source = new URL("../../../../test/fixtures/image-input/transformers-references.json", import.meta.url);
const references = JSON.parse(readFileSync(source, "utf8")) as References;
const root = mkdtempSync(join(tmpdir(), "troupe-vision-folders-"));
after(() => rmSync(root, { recursive: true, force: true }));

function assertClose(found: Float32Array, { step, range, values }: Sampled, most = tolerance): void {
  assert.equal(Math.ceil(found.length / step), values.length);
  const worst = Math.max(...values.map((value, i) => Math.abs(value - (found[i * step] as number)))) / range;
  assert.ok(worst <= most, `differs by ${(100 * worst).toFixed(3)} % of the range`);
}

async function projectorOf(folder: string): Promise<string> {
  const target = `${folder}-projector.gguf`;
  const conversion = await planProjector(folder, { overrides: {}, tokenizer: null, floatType: null });
  await convert(conversion, { target, threads: 1 });
  return target;
}

/** Returns the embeddings of a tile, and the content of the projector file. */
async function encoded(path: string, tile: Tile): Promise<{ embeddings: Float32Array; file: ImageEncoder["file"] }> {
  const encoder = await ImageEncoder.load(path, 1);
  try {
    return { embeddings: encoder.encode(tile), file: encoder.file };
  } finally {
    encoder.dispose();
  }
}

/** Returns the embeddings of audio. */
async function audioEmbeddings(path: string): Promise<Float32Array> {
  const encoder = await AudioEncoder.load(path, 2);
  try {
    return encoder.encode(encoder.windows(tones(3.21))[0] as Float32Array);
  } finally {
    encoder.dispose();
  }
}

describe("the vision part of a checkpoint", () => {
  for (const name of visionClasses) {
    it(`gives the embeddings of transformers: ${name}`, async () => {
      const folder = join(root, name);
      await writeVisionFolder(folder, name);
      const projector = await projectorOf(folder);
      const { embeddings, file } = await encoded(projector, folderTile(...tileSizeOf(name)));
      assertClose(embeddings, references[name]);
      const { audio } = references[name];
      assert.equal(audio !== undefined, name.startsWith("Gemma4"));
      if (audio) assertClose(await audioEmbeddings(projector), audio);
      if (name !== "LlavaNextForConditionalGeneration") return;
      assert.deepEqual(file.tiling.slices, { kind: "grids", grids: [1, 2, 3].map((columns) => [columns, 1]) });
    });
  }
});

for (const kind of languageKinds) {
  describe(`a checkpoint that accepts images, ${kind}`, () => {
    const tile = folderTile(languageImage.width, languageImage.height);
    const folders = new Map<Naming, string>();
    const projectors = new Map<Naming, string>();
    let embeddings: Float32Array;
    let file: ImageEncoder["file"];
    before(async () => {
      for (const naming of ["newer", "older"] as const) {
        const folder = join(root, naming, kind);
        await writeLanguageFolder(folder, kind, naming);
        folders.set(naming, folder);
        projectors.set(naming, await projectorOf(folder));
      }
      ({ embeddings, file } = await encoded(projectors.get("newer") as string, tile));
    });

    it("gives the embeddings of transformers", () => {
      const { layout } = file.rules;
      const { columns } = tileGrid({ ...file.rules, layout: "cells" }, tile);
      const { length } = file.sizes;
      // The embedding at the end of each row comes from the text model, so it is not compared.
      const isOfImage = (_: number, i: number) =>
        layout !== "rows" || Math.floor(i / length) % (columns + 1) !== columns;
      assertClose(embeddings.filter(isOfImage), references[kind]);
    });

    // Skipped for models whose folders use only one naming.
    const skip = kind === "minicpm-v" || kind.startsWith("qwen3-vl");
    it("is read in the same way with the names of older releases", { skip }, async () => {
      const [newer, older] = (["newer", "older"] as const).map((naming) => projectors.get(naming) as string);
      assert.deepEqual(readFileSync(older as string), readFileSync(newer as string));
      const [one, other] = await Promise.all(
        (["newer", "older"] as const).map((naming) => checkpointValues(folders.get(naming) as string)),
      );
      assert.deepEqual(other, one);
    });

    for (const engine of ["wasm", "llama"] as const) {
      it(`gives the logits of transformers after a prompt with the image on ${engine}`, async () => {
        const path = join(root, `${kind}-${engine}.gguf`);
        await writeAsGguf(folders.get("newer") as string, path, 1);
        const changes = {
          threads: engine === "wasm" ? 2 : 1,
          maxSequences: 1,
          maxBatchTokens: 256,
          maxModelLength: 256,
        };
        const images = {
          ...file.rules,
          path: "",
          maxEdge: null,
          maxImages: 1,
          maxFrames: 1,
          cacheBytes: 0,
          maxMediaBytesInFlight: 2 ** 30,
        };
        const model = await (await openEngine(engine)).load(specOf(path, { ...changes, images }), () => {});
        try {
          const { ids, from, to } = languagePrompt(kind);
          const tokens = Int32Array.from(ids, (id, i) => (i >= from && i < to ? -1 - i : id));
          const { attendsAhead, hasGridPositions } = file.rules;
          const grid = hasGridPositions ? tileGrid(file.rules, tile) : null;
          const span: PromptSpan = { from, to, embeddings, attendsAhead, grid };
          const batch = new Batch(1, 256);
          model.kv.reserve(0, tokens.length);
          batch.addRow(0, tokens, 0, tokens.length, 1, 0);
          batch.embed([span]);
          const { logits, logitsRow } = model.step(batch);
          const { vocabSize } = model.card;
          const at = (logitsRow[0] as number) * vocabSize;
          assertClose(logits.slice(at, at + vocabSize), references[kind].logits, logitsTolerance);
        } finally {
          model.dispose();
        }
      });
    }
  });
}
