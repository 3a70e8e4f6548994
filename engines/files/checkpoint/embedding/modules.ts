// Modules of an embedding model: the steps after the transformer, which modules.json lists in a checkpoint of sentence-transformers or
// PyLate. Pooling becomes a key/value pair of the GGUF file; dense layers become tensors.
import { join } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import { quote } from "../../gguf/invalid-file.ts";
import { type ModelTensors, readModelTensors } from "../../safetensors/shards.ts";
import { isObject, type JsonObject } from "../config.ts";
import { readJsonObject, readJsonValue } from "../json-file.ts";

/** Values of the GGUF key pooling_type. */
const kinds: Readonly<Record<string, number>> = { mean: 1, cls: 2, lasttoken: 3 };
const flags: Readonly<Record<string, number>> = {
  ...{ pooling_mode_mean_tokens: 1, pooling_mode_cls_token: 2, pooling_mode_lasttoken: 3 },
};
/** Modules that need no conversion: the transformer itself, and the normalization of the result. */
const otherModules = ["Transformer", "Normalize"];
/** Name of a module's folder next to config.json, such as `1_Pooling`. */
const folderName = /^[\w-]{1,64}$/;
/** The only activation of dense layers that the engines compute: the identity. */
const noActivation = "torch.nn.modules.linear.Identity";

export interface EmbeddingModules {
  /** Value of pooling_type; null if modules.json names no pooling. */
  readonly pooling: number | null;
  /** Tensors of the dense layers in order; one element for each layer. */
  readonly dense: readonly ModelTensors[];
  /** Whether the model returns one vector per token (ColBERT): a dense layer follows the transformer without pooling. */
  readonly isMultiVector: boolean;
  /** Whether the pooling must leave out the tokens of the prompt (`include_prompt` is false). The engines cannot do this. */
  readonly excludesPrompt: boolean;
}

export const noModules: EmbeddingModules = { pooling: null, dense: [], isMultiVector: false, excludesPrompt: false };

/** Reads the modules. Throws `unsupported`, which names the module that no engine computes. */
export async function readModules(folder: string): Promise<EmbeddingModules> {
  const path = join(folder, "modules.json");
  const listed = await readJsonValue(path);
  let pooling: number | null = null;
  let excludesPrompt = false;
  const dense: ModelTensors[] = [];
  for (const entry of Array.isArray(listed) ? listed : []) {
    const { type, path: place } = isObject(entry) ? entry : {};
    const name = typeof type === "string" ? type.slice(type.lastIndexOf(".") + 1) : "";
    if (otherModules.includes(name)) continue;
    if (name !== "Pooling" && name !== "Dense") throw unsupportedModule(path, String(type));
    if (typeof place !== "string" || !folderName.test(place)) {
      throw new ServerError("model_file_invalid", `${path} has no valid "path" for the module ${name}; fetch it again`);
    }
    const config = join(folder, place, "config.json");
    const settings = await readJsonObject(config);
    if (settings === null) throw new ServerError("model_file_invalid", `${config} is missing; fetch the model again`);
    if (name === "Pooling") {
      pooling = typeOf(config, settings);
      excludesPrompt = settings.include_prompt === false;
    } else dense.push(await readDense(join(folder, place), config, settings));
  }
  return { pooling, dense, isMultiVector: pooling === null && dense.length > 0, excludesPrompt };
}

async function readDense(folder: string, path: string, settings: JsonObject): Promise<ModelTensors> {
  const { activation_function: activation = noActivation } = settings;
  if (activation !== noActivation) throw unsupportedModule(path, `Dense with ${String(activation)}`);
  if (settings.use_residual === true) throw unsupportedModule(path, "Dense with a residual");
  return await readModelTensors(folder, null);
}

function unsupportedModule(path: string, module: string): ServerError {
  return new ServerError(
    "unsupported",
    `${path} has the module ${quote(module)}, which the engines do not compute; they compute Transformer, Pooling, ` +
      "Normalize, and Dense without an activation, for EmbeddingGemma two, for ColBERT one: use another model",
    { param: "modules" },
  );
}

function typeOf(path: string, config: JsonObject): number {
  const [, flagged] = Object.entries(flags).find(([name]) => config[name] === true) ?? [];
  const mode = config.pooling_mode;
  const named = typeof mode === "string" && Object.hasOwn(kinds, mode) ? kinds[mode] : undefined;
  const type = flagged ?? named;
  if (type !== undefined) return type;
  throw new ServerError(
    "unsupported",
    `${path} asks for a pooling ${mode === undefined ? "" : `${quote(String(mode))} `}that the engines do not have; ` +
      "they have mean, cls and lasttoken: use another model",
    { param: "pooling_mode" },
  );
}
