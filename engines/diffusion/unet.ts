// U-Net: the ONNX session that estimates the noise in the latents. SDXL and consistency models have additional inputs.
import { ServerError } from "../../runtime/errors.ts";
import { type Onnx, type OnnxSession, openSession, runSession } from "../onnx/onnx.ts";
import { floatsOf, inputsOf, type OnnxPort, tensorFor } from "../onnx/tensors.ts";
import { type DiffusionFolder, partFile } from "./model-folder.ts";
import type { EncodedPrompt } from "./text-encoders.ts";

const required = ["sample", "timestep", "encoder_hidden_states"];
const known = [...required, "text_embeds", "time_ids", "timestep_cond"];
/** Factor by which the guidance strength is multiplied before it is encoded as sines and cosines. */
const guidanceUnit = 1000;

export interface LatentShape {
  readonly channels: number;
  readonly height: number;
  readonly width: number;
}

/** Inputs that are the same in all evaluations of an image. */
export interface Conditions {
  readonly latents: LatentShape;
  /** Size of the image in pixels. */
  readonly width: number;
  readonly height: number;
  readonly guidance: number;
}

export class UNet {
  readonly session: OnnxSession;
  /** Whether the guidance strength is an input, so that one evaluation per step is sufficient. */
  readonly takesGuidance: boolean;
  readonly #onnx: Onnx;
  readonly #ports: readonly OnnxPort[];
  readonly #guidanceLength: number;
  readonly #outputName: string;

  private constructor(onnx: Onnx, session: OnnxSession, { path, guidanceEmbedding, channels, isXl }: DiffusionFolder) {
    this.#onnx = onnx;
    this.session = session;
    this.#ports = inputsOf(session);
    const file = partFile(path, "unet");
    const names = this.#ports.map(({ name }) => name);
    const missing = [...required, ...(isXl ? ["text_embeds", "time_ids"] : [])].filter((name) => !names.includes(name));
    const unknown = names.filter((name) => !known.includes(name));
    if (missing.length > 0 || unknown.length > 0) {
      const message = `"${file}" has the inputs ${names.join(", ").slice(0, 200)}; expected ${known.join(", ")}, the first three always`;
      throw new ServerError("model_file_invalid", message);
    }
    checkBatch(file, this.#ports, channels);
    this.takesGuidance = names.includes("timestep_cond");
    const wanted = this.#ports.find(({ name }) => name === "timestep_cond")?.shape[1];
    this.#guidanceLength = typeof wanted === "number" ? wanted : (guidanceEmbedding ?? 0);
    if (this.takesGuidance && (this.#guidanceLength < 4 || this.#guidanceLength % 2 !== 0)) {
      const message = `"${file}" has the input timestep_cond, so unet/config.json needs an even time_cond_proj_dim from 4; got ${this.#guidanceLength}`;
      throw new ServerError("model_file_invalid", message);
    }
    this.#outputName = session.outputNames[0] ?? "";
  }

  static async open(onnx: Onnx, folder: DiffusionFolder, threads: number): Promise<UNet> {
    return new UNet(onnx, await openSession(onnx, partFile(folder.path, "unet"), threads), folder);
  }

  /** Returns the size in latents for which the file was exported; null = any size. */
  fixedSize(): { readonly height: number | null; readonly width: number | null } {
    const [, , height, width] = this.#ports.find(({ name }) => name === "sample")?.shape ?? [];
    const fixed = (size: number | string | undefined) => (typeof size === "number" && size > 0 ? size : null);
    return { height: fixed(height), width: fixed(width) };
  }

  /** Evaluates the model once. `sample`: the scaled latents. Returns an array of the same length. */
  async evaluate(
    sample: Float32Array,
    timestep: number,
    prompt: EncodedPrompt,
    conditions: Conditions,
  ): Promise<Float32Array> {
    const feeds: Record<string, ReturnType<typeof tensorFor>> = {};
    for (const port of this.#ports) {
      const { values, shape } = this.#inputOf(port, sample, timestep, prompt, conditions);
      feeds[port.name] = tensorFor(this.#onnx, port, values, shape);
    }
    const output = floatsOf(await runSession(this.session, feeds), this.#outputName);
    if (output.length === sample.length) return output;
    const message = `the model returned ${output.length} numbers for ${sample.length} latents`;
    throw new ServerError("model_failed", message);
  }

  #inputOf(
    { name, shape }: OnnxPort,
    sample: Float32Array,
    timestep: number,
    prompt: EncodedPrompt,
    { latents, width, height, guidance }: Conditions,
  ): { readonly values: Float32Array | readonly number[]; readonly shape: readonly number[] } {
    switch (name) {
      case "sample":
        return { values: sample, shape: [1, latents.channels, latents.height, latents.width] };
      case "timestep":
        return { values: [timestep], shape: shape.length === 0 ? [] : [1] };
      case "encoder_hidden_states":
        return { values: prompt.states, shape: [1, prompt.length, prompt.width] };
      case "text_embeds": {
        const pooled = prompt.pooled ?? new Float32Array();
        return { values: pooled, shape: [1, pooled.length] };
      }
      case "time_ids":
        // Original size, position of the crop, target size: the image is neither cropped nor scaled.
        return { values: [height, width, 0, 0, height, width], shape: [1, 6] };
      default:
        return { values: guidanceEmbedding(guidance - 1, this.#guidanceLength), shape: [1, this.#guidanceLength] };
    }
  }
}

/** Returns the sines and cosines that encode the guidance strength for a consistency model. */
function guidanceEmbedding(guidance: number, length: number): number[] {
  const half = length / 2;
  const angles = Array.from({ length: half }, (_, i) => {
    return guidance * guidanceUnit * Math.exp((-i * Math.log(10_000)) / (half - 1));
  });
  return [...angles.map(Math.sin), ...angles.map(Math.cos)];
}

function checkBatch(file: string, ports: readonly OnnxPort[], channels: number): void {
  const [batch, depth] = ports.find(({ name }) => name === "sample")?.shape ?? [];
  if (typeof batch === "number" && batch > 1) {
    const message = `"${file}" was exported for a fixed batch of ${batch}; export it with a dynamic batch, or with 1`;
    throw new ServerError("model_file_invalid", message);
  }
  if (typeof depth === "number" && depth > 0 && depth !== channels) {
    const message = `"${file}" takes latents of ${depth} channels; unet/config.json says ${channels}`;
    throw new ServerError("model_file_invalid", message);
  }
}
