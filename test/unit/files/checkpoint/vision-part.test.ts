// Vision parts of checkpoints: how the folder's fields determine the preparation of images, and what is rejected with which
// error.
import assert from "node:assert/strict";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import type { JsonObject } from "../../../../engines/files/checkpoint/config.ts";
import { openVisionPart } from "../../../../engines/files/checkpoint/vision/vision-part.ts";
import { type ProjectorFile, readProjectorFile } from "../../../../engines/files/projector/image-projector.ts";
import { convert } from "../../../../engines/quantization/conversion/conversion.ts";
import { planProjector } from "../../../../engines/quantization/conversion/plan-projector.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { writeVisionFolder } from "../../../fixtures/image-input/vision-folder.ts";
import { type LanguageKind, writeLanguageFolder } from "../../../fixtures/image-input/vision-language-folder.ts";
import { inTemporaryFolder } from "../gguf/gguf-bytes.ts";

/** Returns the metadata of the projector file that is made from a folder with some changes. */
async function projectorOf(
  kind: LanguageKind,
  { config = {}, images }: { config?: JsonObject; images?: JsonObject } = {},
): Promise<ProjectorFile> {
  return await inTemporaryFolder(async (folder) => {
    await writeLanguageFolder(folder, kind);
    const path = join(folder, "preprocessor_config.json");
    const channels = JSON.parse(await readFile(path, "utf8"));
    if (images) await writeFile(path, JSON.stringify({ ...channels, size: undefined, ...images }));
    const target = join(folder, "projector.gguf");
    const conversion = await planProjector(folder, { overrides: config, tokenizer: null, floatType: null });
    await convert(conversion, { target, threads: 1 });
    return await readProjectorFile(target);
  });
}

function refused(code: string, words: RegExp): (error: unknown) => boolean {
  return (error) => {
    assert.ok(error instanceof ServerError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, words);
    return true;
  };
}

describe("the vision part of a folder", () => {
  it("has the limits of an image's area, up to what the encoder takes", async () => {
    const limits = [
      [{ min_pixels: 3136, max_pixels: 1_003_520 }, 3136, 1_003_520],
      [{ size: { shortest_edge: 3136, longest_edge: 12_845_056 } }, 3136, 4096 * 28 ** 2],
      [{}, 8 * 28 ** 2, 4096 * 28 ** 2],
    ] as const;
    for (const [images, minPixels, maxPixels] of limits) {
      const maxFramePixels = Math.min(maxPixels, 768 * 28 ** 2);
      const { tiling, sizes } = await projectorOf("qwen2.5-vl", { images });
      assert.deepEqual(tiling.variable, { unit: 28, minPixels, maxPixels, maxFramePixels, maxEdge: null });
      assert.equal(sizes.patches, maxPixels / 14 ** 2);
    }
  });

  it("has audio if the config names it, and is refused if a tensor of its projection is missing", async () => {
    await inTemporaryFolder(async (folder) => {
      await writeVisionFolder(folder, "Gemma4UnifiedForConditionalGeneration");
      const hasAudio = async (overrides: JsonObject) => {
        const { pairs, tensors } = await openVisionPart(folder, overrides);
        return [
          pairs.has("clip.has_audio_encoder"),
          tensors.some(({ name }) => name === "mm.a.input_projection.weight"),
        ];
      };
      assert.deepEqual(await hasAudio({}), [true, true]);
      assert.deepEqual(await hasAudio({ audio_config: null }), [false, false]);
      const path = join(folder, "model.safetensors");
      const renamed = (await readFile(path)).toString("latin1").replace("embed_audio", "other_audio");
      await writeFile(path, renamed, "latin1");
      await assert.rejects(hasAudio({}), refused("model_file_invalid", /no tensor embedding_projection; fetch/));
    });
  });

  it("has the longest edge of an image", async () => {
    const { tiling } = await projectorOf("mistral3", { images: { size: { longest_edge: 280 } } });
    assert.equal(tiling.variable?.maxEdge, 280);
    assert.equal(tiling.variable?.maxPixels, 280 ** 2);
  });

  it("takes the states of the layer that config.json names", async () => {
    const { sizes } = await projectorOf("pixtral", { config: { vision_feature_layer: -2 } });
    assert.equal(sizes.layers, 3);
  });

  it("has the interval of layers whose attention is not limited to windows", async () => {
    assert.deepEqual((await projectorOf("qwen2.5-vl")).sizes.windows, { side: 4, interval: 2 });
    for (const layers of [[0, 3], [1], [3, 1], []]) {
      const config = { vision_config: { fullatt_block_indexes: layers } };
      await assert.rejects(projectorOf("qwen2.5-vl", { config }), refused("unsupported", /fullatt_block_indexes/));
    }
  });

  it("is refused if the encoder does not compute a value", async () => {
    for (const [field, value] of Object.entries({ window_size: 224, spatial_merge_size: 4, temporal_patch_size: 1 })) {
      const config = { vision_config: { [field]: value } };
      await assert.rejects(projectorOf("qwen2.5-vl", { config }), refused("unsupported", new RegExp(field)));
    }
    const config = { vision_config: { rope_theta: 5000 } };
    await assert.rejects(projectorOf("mistral3", { config }), refused("unsupported", /rope_theta/));
  });

  it("is refused if the tokenizer lacks the token that ends a row of an image", async () => {
    await inTemporaryFolder(async (folder) => {
      await writeLanguageFolder(folder, "mistral3");
      const path = join(folder, "tokenizer.json");
      await writeFile(path, (await readFile(path, "utf8")).replaceAll("[IMG_BREAK]", "[IMG_ROW]"));
      await assert.rejects(openVisionPart(folder), refused("model_file_invalid", /no token "\[IMG_BREAK\]"/));
    });
  });
});
