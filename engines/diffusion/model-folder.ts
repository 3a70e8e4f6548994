// Model folder: the files of a diffusion model in the layout of diffusers, and the settings in them. A folder with weights in
// another format is refused with the command that exports it.
import { readdir, stat } from "node:fs/promises";
import { join } from "node:path";
import { ServerError } from "../../runtime/errors.ts";
import { TokenizerFolder } from "../files/checkpoint/tokenizer/source/tokenizer-folder.ts";
import { JsonField } from "../files/json-field.ts";
import { readSchedulerConfig, type SchedulerConfig } from "./schedulers/config.ts";

/** Names of the supported text-to-image pipelines, which model_index.json states. */
const pipelines = [
  "StableDiffusionPipeline",
  "OnnxStableDiffusionPipeline",
  "ORTStableDiffusionPipeline",
  "StableDiffusionXLPipeline",
  "ORTStableDiffusionXLPipeline",
  "LatentConsistencyModelPipeline",
  "ORTLatentConsistencyModelPipeline",
] as const;

const defaultScaling = 0.18215;
const defaultLevels = 4;
/** Width and height in latents for which the first Stable Diffusion models were trained. Default of `sample_size`. */
const defaultSampleSize = 64;
const mostSize = 8192;

export interface DiffusionFolder {
  readonly path: string;
  readonly pipeline: string;
  /** Whether the model has a second text encoder (SDXL). */
  readonly isXl: boolean;
  /** SDXL: whether a request without a negative prompt gets zeros instead of an encoded empty prompt. */
  readonly zeroesEmptyPrompt: boolean;
  readonly scheduler: SchedulerConfig;
  /** Number of channels of the latents. */
  readonly channels: number;
  /** Number of pixels per latent, along each side. */
  readonly pixelsPerLatent: number;
  /** Widths and heights are multiples of this number of pixels. */
  readonly sizeMultiple: number;
  /** Width and height in pixels for which the model was trained. */
  readonly nativeSize: number;
  /** Scaling factor of the latents, by which they are divided before they are decoded. */
  readonly scaling: number;
  /** Length of the guidance embedding of a consistency model; null = unknown. */
  readonly guidanceEmbedding: number | null;
  /** Bytes of all ONNX files with their external data. */
  readonly weightBytes: number;
}

/** Returns whether a path is a folder of a diffusion model: it has a model_index.json. */
export async function isDiffusionFolder(path: string): Promise<boolean> {
  return await exists(join(path, "model_index.json"));
}

/** Reads the settings of a folder. Throws model_file_invalid and unsupported, which name the file and the field. */
export async function readDiffusionFolder(path: string): Promise<DiffusionFolder> {
  const folder = await TokenizerFolder.open(path);
  const index = await folder.json("model_index.json");
  if (index === null) {
    const message = `kind diffusion expects a folder with a model_index.json, in the layout of diffusers; got "${path}"`;
    throw new ServerError("model_file_invalid", message);
  }
  const pipeline = index.required(index.get("_class_name").text());
  if (!pipelines.some((name) => name === pipeline)) {
    throw index.get("_class_name").invalid(`is "${pipeline.slice(0, 100)}"; expected ${pipelines.join(", ")}`);
  }
  const isXl = pipeline.includes("XL");
  await checkParts(path, isXl);
  const [schedule, unet, vae] = await Promise.all([
    schedulerConfig(folder),
    folder.json("unet/config.json"),
    folder.json("vae_decoder/config.json"),
  ]);
  const none = new JsonField(path, "", {});
  const [unetConfig, vaeConfig] = [unet ?? none, vae ?? none];
  const channels = unetConfig.get("in_channels").count(64) ?? 4;
  const latents = vaeConfig.get("latent_channels").count(64) ?? 4;
  if (channels !== latents) {
    const message = `is ${channels}; expected the ${latents} channels of the latents: models that change images are not supported`;
    throw unetConfig.get("in_channels").invalid(message);
  }
  if (!vaeConfig.get("shift_factor").isAbsent) {
    throw vaeConfig.get("shift_factor").invalid("is set; only latents without a shift are supported");
  }
  const scaling = vaeConfig.get("scaling_factor").number() ?? defaultScaling;
  if (!(scaling > 0)) throw vaeConfig.get("scaling_factor").invalid(`is ${scaling}; expected a number above 0`);
  const pixelsPerLatent = 2 ** (levelsOf(vaeConfig) - 1);
  const size = unetConfig.get("sample_size").count(mostSize) ?? defaultSampleSize;
  if (size === 0) throw unetConfig.get("sample_size").invalid("is 0; expected a positive number");
  return {
    path,
    pipeline,
    isXl,
    zeroesEmptyPrompt: isXl && (index.get("force_zeros_for_empty_prompt").flag() ?? true),
    scheduler: readSchedulerConfig(schedule),
    channels,
    pixelsPerLatent,
    sizeMultiple: pixelsPerLatent * 2 ** (levelsOf(unetConfig) - 1),
    nativeSize: size * pixelsPerLatent,
    scaling,
    guidanceEmbedding: unetConfig.get("time_cond_proj_dim").count(mostSize),
    weightBytes: await weightBytes(path, isXl),
  };
}

/** Returns the path of a component's ONNX file. */
export function partFile(path: string, part: string): string {
  return join(path, part, "model.onnx");
}

function partsOf(isXl: boolean): string[] {
  return ["text_encoder", ...(isXl ? ["text_encoder_2"] : []), "unet", "vae_decoder"];
}

async function checkParts(path: string, isXl: boolean): Promise<void> {
  const missing: string[] = [];
  for (const part of partsOf(isXl)) if (!(await exists(partFile(path, part)))) missing.push(`${part}/model.onnx`);
  if (missing.length === 0) return;
  const others = await readdir(join(path, "unet")).catch(() => []);
  if (others.some((name) => /\.(safetensors|bin|ckpt)$/.test(name))) {
    const message =
      `"${path}" has weights of PyTorch, not ONNX: ${missing.join(", ")} are missing. Export them: pip install ` +
      `"optimum-onnx[onnxruntime]", then optimum-cli export onnx --model "${path}" --task text-to-image OUTPUT, and serve OUTPUT`;
    throw new ServerError("unsupported", message);
  }
  throw new ServerError(
    "model_file_invalid",
    `"${path}" has no ${missing.join(", ")}; expected the layout of diffusers`,
  );
}

/** Reads scheduler_config.json, in which Python may write -Infinity, which is not JSON. */
async function schedulerConfig(folder: TokenizerFolder): Promise<JsonField> {
  const name = "scheduler/scheduler_config.json";
  const text = await folder.text(name);
  if (text === null) throw new ServerError("model_file_invalid", `${join(folder.path, name)} is missing`);
  const file = new JsonField(join(folder.path, name), "", null);
  try {
    const config = file.with(JSON.parse(text.replaceAll(/:\s*-?(?:Infinity|NaN)/g, ":null")));
    config.required(config.record());
    return config;
  } catch (error) {
    if (error instanceof ServerError) throw error;
    throw file.invalid("is not JSON");
  }
}

/** Returns the number of resolutions of a network, from the list of its channels. */
function levelsOf(config: JsonField): number {
  const channels = config.get("block_out_channels");
  const levels = channels.isAbsent ? defaultLevels : channels.elements(8).length;
  if (levels > 0) return levels;
  throw channels.invalid("is empty; expected a number for each resolution");
}

async function weightBytes(path: string, isXl: boolean): Promise<number> {
  let bytes = 0;
  for (const part of partsOf(isXl)) {
    for (const name of await readdir(join(path, part))) {
      const state = await stat(join(path, part, name)).catch(() => null);
      if (state?.isFile() && !name.endsWith(".json")) bytes += state.size;
    }
  }
  return bytes;
}

async function exists(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isFile() ?? false;
}
