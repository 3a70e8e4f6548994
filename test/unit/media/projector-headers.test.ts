// Headers of projector files of Gemma 4: files whose sizes or tensors do not fit are refused with an error that names what is wrong.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { AudioEncoder } from "../../../engines/wasm/audio/audio-encoder.ts";
import { ImageEncoder } from "../../../engines/wasm/vision/image-encoder.ts";
import { tinyAudioProjector } from "../../fixtures/audio-input/tiny-audio-model.ts";
import { tinyProjector } from "../../fixtures/image-input/tiny-projector.ts";
import { type Tensor, type TinyFile, u32, writeGguf } from "../../fixtures/models/tiny-gguf.ts";

const folder = mkdtempSync(join(tmpdir(), "troupe-projectors-"));
after(() => rmSync(folder, { recursive: true }));

/** Returns a file with as many positions as it needs. */
function image(options: { width?: number; heads?: number } = {}): TinyFile {
  const { fields, tensors } = tinyProjector({ projector: "gemma4v", seed: 1, length: 128, layers: 1, ...options });
  const shortened = tensors.map((tensor) => {
    if (tensor.name !== "v.position_embd.weight") return tensor;
    const [width = 0] = tensor.shape;
    return { ...tensor, shape: [width, 840, 2], values: tensor.values.subarray(0, 1680 * width) };
  });
  return { fields, tensors: shortened };
}

/** Writes a file, with some fields and tensors replaced. */
async function written(
  file: TinyFile,
  fields: object,
  replace: (tensor: Tensor) => readonly Tensor[],
): Promise<string> {
  const path = join(folder, "changed.gguf");
  await writeGguf(path, {
    fields: { ...file.fields, ...fields },
    tensors: file.tensors.flatMap(replace),
    weights: "F16",
  });
  return path;
}

async function refused(load: Promise<unknown>, code: string, message: RegExp): Promise<void> {
  await assert.rejects(load, { code, message });
}

describe("a projector file of Gemma 4", () => {
  it("with heads that the kernels cannot compute is refused", async () => {
    const path = await written(image({ width: 768, heads: 1 }), {}, (tensor) => [tensor]);
    await refused(
      ImageEncoder.load(path, 1),
      "unsupported",
      /1 heads of 768 floats; expected a multiple of 4, at most 512/,
    );
  });

  it("without enough positions is refused", async () => {
    const path = await written(image(), { "clip.vision.image_max_pixels": u32(2 ** 28) }, (tensor) => [tensor]);
    await refused(
      ImageEncoder.load(path, 1),
      "model_file_invalid",
      /840 positions per side; expected at least 5\d\d\d/,
    );
  });

  it("without a tensor is refused, with its name", async () => {
    // Only every n-th tensor, to save time; files of lfm2a are large.
    for (const [file, load, interval] of [
      [image(), ImageEncoder.load, 3],
      [tinyAudioProjector("gemma4a", 1), AudioEncoder.load, 3],
      [tinyAudioProjector("lfm2a", 1), AudioEncoder.load, 8],
    ] as const) {
      const names = file.tensors.map(({ name }) => name).filter((name) => !name.startsWith("a.blk.1."));
      // These tensors, and biases, are in some models only.
      const optional =
        /\.bias$|^a\.position_embd|norm(?:\.weight|_1\.weight)$|norm_conv|conv1d\.\d\.norm|std_|per_dim|soft_emb|input_max|pre_encode|attn_[qk]_norm|ffn_gate/;
      const required = names.filter((one) => !optional.test(one));
      for (const name of required.filter((_, i) => i % interval === 0)) {
        const path = await written(file, {}, (tensor) => (tensor.name === name ? [] : [tensor]));
        await refused(
          load(path, 1),
          "model_file_invalid",
          new RegExp(`has no tensor "${name.replaceAll(".", "\\.")}"`),
        );
      }
    }
  });

  it("with samples of another length is refused", async () => {
    const path = await written(tinyAudioProjector("gemma4ua", 1), {}, (tensor) => {
      return [{ ...tensor, shape: [320, 128], values: new Float32Array(320 * 128) }];
    });
    await refused(AudioEncoder.load(path, 1), "model_file_invalid", /takes 320 samples; expected 640/);
  });
});
