// Quantisation of a checkpoint: finds the tensors that belong to a quantised matrix, by the field quantization_config,
// and describes the matrix they stand for. The other tensors are plain.
import { ServerError } from "../../../../runtime/errors.ts";
import { quote } from "../../gguf/invalid-file.ts";
import type { ModelTensors } from "../../safetensors/shards.ts";
import { Config, isObject, type JsonObject } from "../config.ts";
import type { SourceTensor } from "../tensor-map.ts";
import { bitsandbytes } from "./bitsandbytes.ts";
import { type Method, OpenTensors } from "./method.ts";
import { mxfp4 } from "./mxfp4.ts";
import { awq, gptq, packedRows } from "./packed.ts";
import { plainTensor } from "./plain.ts";
import { eightBit } from "./scaled.ts";

const methods: Readonly<Record<string, Method>> = {
  ...{ gptq, awq, bitsandbytes, mxfp4 },
  ...{ fp8: eightBit, finegrained_fp8: eightBit, fbgemm_fp8: eightBit },
};
/** Quantisation methods of compressed-tensors, by the value of its field `format`. */
const formats: Readonly<Record<string, Method>> = {
  ...{ "float-quantized": eightBit, "naive-quantized": eightBit, "int-quantized": eightBit },
  "pack-quantized": packedRows,
};

/** Returns the matrices of a model. `quantisation`: content of quantization_config; `path`: config.json, for errors. */
export async function resolveQuantisation(
  model: ModelTensors,
  quantisation: unknown,
  path: string,
): Promise<SourceTensor[]> {
  const tensors = new OpenTensors(model);
  const made = isObject(quantisation) ? await resolve(tensors, quantisation, path) : [];
  return [...made, ...tensors.rest.map((tensor) => plainTensor(tensor, model))];
}

function resolve(tensors: OpenTensors, quantisation: JsonObject, path: string): Promise<readonly SourceTensor[]> {
  const { quant_method: name, format } = quantisation;
  if (name === "compressed-tensors") {
    const method = lookUp(formats, format);
    if (method) return method(tensors, groupSettings(quantisation, path));
    throw unknown(path, "format", format, formats);
  }
  if (name === "modelopt" && quantisation.quant_algo === "FP8")
    return eightBit(tensors, new Config(path, quantisation));
  const method = lookUp(methods, name);
  if (method) return method(tensors, new Config(path, quantisation));
  throw unknown(path, "quant_method", name, { ...methods, "compressed-tensors": eightBit, "modelopt (FP8)": eightBit });
}

/** Returns the weight settings of the only config group. Throws `unsupported` if there are several groups. */
function groupSettings({ config_groups: groups }: JsonObject, path: string): Config {
  const all = isObject(groups) ? Object.values(groups) : [];
  const [group] = all;
  const weights = isObject(group) ? group.weights : undefined;
  if (all.length === 1 && isObject(weights)) return new Config(path, weights);
  throw new ServerError(
    "unsupported",
    `${path} has ${all.length} groups in quantization_config.config_groups; one can be read: use the unquantised model`,
    { param: "quantization_config" },
  );
}

function lookUp(table: Readonly<Record<string, Method>>, name: unknown): Method | undefined {
  return typeof name === "string" && Object.hasOwn(table, name) ? table[name] : undefined;
}

function unknown(path: string, field: string, value: unknown, known: Readonly<Record<string, unknown>>): ServerError {
  return new ServerError(
    "unsupported",
    `${path} has ${quote(`quantization_config.${field}`)}: ${quote(String(value))}, which cannot be read; known are ` +
      `${Object.keys(known).join(", ")}: use the unquantised model, or a GGUF file of it`,
    { param: "quantization_config" },
  );
}
