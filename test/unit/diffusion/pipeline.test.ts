// Diffusion pipeline: tiny models compared with the loop of Python's diffusers over the same ONNX files, and rejected requests
// and models.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { ClipTokenizer } from "../../../engines/diffusion/clip-tokenizer.ts";
import type { ImageRequest } from "../../../engines/diffusion/diffusion.ts";
import type { NoiseSource } from "../../../engines/diffusion/noise.ts";
import { openDiffusion } from "../../../engines/diffusion/pipeline.ts";
import {
  ddimConfig,
  referenceCases,
  type TinyPipeline,
  writeTinyPipeline,
} from "../../fixtures/diffusion/tiny-pipelines.ts";

const root = mkdtempSync(join(tmpdir(), "troupe-diffusion-"));
after(() => rmSync(root, { recursive: true }));
let folders = 0;

const limits = { maxPixels: 256 * 256, maxSteps: 50 };

function open(pipeline: TinyPipeline) {
  const path = writeTinyPipeline(join(root, `model-${folders++}`), pipeline);
  return openDiffusion({ path, threads: 1, limits });
}

/** Returns the noise source of make-tiny-pipelines.py. */
function referenceNoise(): NoiseSource {
  let step = 0;
  return {
    next(count) {
      const phase = 78.233 * step++;
      return Float32Array.from({ length: count }, (_, i) => 1.3 * Math.cos(12.9898 * i + phase));
    },
  };
}

const request: ImageRequest = {
  prompt: "a red cat",
  negativePrompt: null,
  width: null,
  height: null,
  steps: 2,
  guidance: null,
  scheduler: null,
  seed: 7,
  truncatesPrompt: false,
};

describe("diffusion pipeline", () => {
  for (const [index, one] of referenceCases().entries()) {
    const name = `${one.kind}, ${one.unet}, ${(one.config as { _class_name: string })._class_name}, guidance ${one.guidance}`;
    it(`case ${index}: computes the latents and pixels of Python: ${name}`, async () => {
      const model = await open(one);
      const { prompt, width, height, steps, guidance } = one;
      const asked = { ...request, prompt, negativePrompt: one.negative ?? null, width, height, steps, guidance };
      const image = await model.begin(asked, referenceNoise());
      assert.equal(image.promptTokens, one.tokens.length);
      while (image.done < image.evaluations) await image.advance();
      const { latents } = image as unknown as { readonly latents: Float32Array };
      const most = Math.max(...one.latents.map(Math.abs));
      const worst = Math.max(...one.latents.map((value, i) => Math.abs(value - (latents[i] as number)))) / most;
      assert.ok(worst <= (one.unet === "unet-half" ? 4e-3 : 1e-3), `relative error of the latents: ${worst}`);
      const pixels = await image.pixels();
      assert.deepEqual([pixels.width, pixels.height, pixels.data.length], [width, height, 3 * width * height]);
      one.pixels.forEach((value, i) => {
        assert.ok(Math.abs(value - (pixels.data[i] as number)) <= 2, `byte ${i}: ${pixels.data[i]}, wanted ${value}`);
      });
      const mean = pixels.data.reduce((sum, value) => sum + value, 0) / pixels.data.length;
      assert.ok(Math.abs(mean - one.mean) < 0.2, `mean ${mean}, wanted ${one.mean}`);
      await model.dispose();
    });
  }

  it("tokenises as CLIP does, and takes control tokens in a prompt as text", async () => {
    const path = writeTinyPipeline(join(root, "tokenizer"), { kind: "sd", config: ddimConfig });
    const tokenizer = await ClipTokenizer.open(join(path, "tokenizer"));
    for (const { prompt, tokens } of referenceCases()) {
      assert.deepEqual([...tokenizer.encode(prompt, false, "prompt").tokens.slice(0, tokens.length)], tokens);
    }
    const { used } = tokenizer.encode("<|endoftext|>", false, "prompt");
    assert.ok(used > 5, `${used} tokens`);
    assert.throws(
      () => tokenizer.encode("x ".repeat(80), false, "prompt"),
      /at most 75 tokens.*got 80.*truncate_sequence/,
    );
    assert.equal(tokenizer.encode("x ".repeat(80), true, "prompt").used, 77);
  });

  it("makes the same image for a seed, and another one for another seed", async () => {
    const model = await open({ kind: "sd", config: ddimConfig });
    const generateImages = async (seed: number) => {
      const image = await model.begin({ ...request, seed });
      while (image.done < image.evaluations) await image.advance();
      return Buffer.from((await image.pixels()).data).toString("base64");
    };
    const [one, again, other] = [await generateImages(1), await generateImages(1), await generateImages(2)];
    assert.equal(one, again);
    assert.notEqual(one, other);
    assert.deepEqual(model.card.defaults, { scheduler: "ddim", steps: 25, guidance: 7.5 });
    await model.dispose();
  });

  it("rejects sizes, steps and prompts that the model does not support, and names the field", async () => {
    const model = await open({ kind: "sd", config: ddimConfig });
    const refused = async (change: Partial<ImageRequest>, pattern: RegExp) =>
      await assert.rejects(model.begin({ ...request, ...change }), pattern);
    await refused({ width: 100 }, /multiples of 64 pixels for this model, got 100 x 64/);
    await refused({ width: 512, height: 512 }, /at most 65536 pixels \(max_pixels of \[diffusion\]\), got 512 x 512/);
    await refused({ steps: 51 }, /at most 50 steps \(max_steps of \[diffusion\]\), got 51/);
    await refused({ guidance: 1, negativePrompt: "x" }, /negative prompt has an effect only/);
    await model.dispose();
  });

  it("rejects unsupported folders, and says what to do", async () => {
    const refused = async (change: (path: string) => void, pattern: RegExp) => {
      const path = writeTinyPipeline(join(root, `bad-${folders++}`), { kind: "sd", config: ddimConfig });
      change(path);
      await assert.rejects(openDiffusion({ path, threads: 1, limits }), pattern);
    };
    await refused((path) => rmSync(join(path, "model_index.json")), /expects a folder with a model_index.json/);
    await refused(
      (path) => writeFileSync(join(path, "model_index.json"), '{"_class_name":"FluxPipeline"}'),
      /_class_name is "FluxPipeline"; expected StableDiffusionPipeline/,
    );
    await refused((path) => {
      rmSync(join(path, "unet/model.onnx"));
      writeFileSync(join(path, "unet/diffusion_pytorch_model.safetensors"), "");
    }, /weights of PyTorch, not ONNX: unet\/model.onnx.*optimum-cli export onnx/);
    await refused((path) => rmSync(join(path, "vae_decoder/model.onnx")), /has no vae_decoder\/model.onnx/);
    await refused(
      (path) => writeFileSync(join(path, "unet/model.onnx"), "not a model"),
      /unet.*is not an ONNX model that can be loaded/,
    );
    await refused(
      (path) => writeFileSync(join(path, "unet/config.json"), '{"in_channels":9}'),
      /in_channels is 9; expected the 4 channels/,
    );
  });
});
