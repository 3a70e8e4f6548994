// Layers on GPUs (setting `device_layers`): checks the setting against the GPUs of this machine and the layers of the model,
// and adds it to the spec of the model.
import type { EngineName, ModelSpec } from "../../../engines/engine.ts";
import { readTensorTable } from "../../../engines/files/gguf/tensors.ts";
import type { NativeHost } from "../../../engines/llama/native/native-host.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { ModelConfig } from "../../config/config.ts";
import type { DeviceLayers } from "../../config/values/device-layers.ts";

/**
 * Adds the numbers of layers on GPUs to a spec. Throws config_invalid if there is no such GPU, or if the model has fewer
 * layers.
 */
export async function withDeviceLayers(
  { id, device }: ModelConfig,
  spec: ModelSpec,
  engine: EngineName,
  host: Pick<NativeHost, "devices">,
  log: Logger,
): Promise<ModelSpec> {
  const { deviceLayers, cpu } = device;
  if (deviceLayers === null) return spec;
  if (cpu) {
    log.warn({ model: id }, "device_layers has no effect, because cpu is set");
    return spec;
  }
  if (engine === "wasm")
    throw invalid(`device_layers expects the llama engine; "${id}" runs on wasm, which uses no GPU`);
  const gpus = await host.devices();
  if (gpus.length === 0) {
    throw invalid("device_layers expects a GPU; llama.cpp finds none on this machine: remove it, or set cpu");
  }
  const unknown = deviceLayers.find((one) => one.device >= gpus.length);
  if (unknown !== undefined) {
    const known = gpus.map(({ name }, index) => `${index} (${name})`).join(", ");
    throw invalid(`device_layers names GPU ${unknown.device}; there are ${known}`);
  }
  return { ...spec, ...gpuShares(deviceLayers, await layersOf(spec.path), gpus.length, id) };
}

/**
 * Returns the number of layers on GPUs as llama.cpp counts them, and how they are split between the GPUs. llama.cpp puts the
 * last layers of a model on GPUs. It counts the output matrix as one more layer. If any layer is on a GPU, the output matrix is
 * on the last GPU that is used.
 */
export function gpuShares(
  deviceLayers: readonly DeviceLayers[],
  modelLayers: number,
  gpus: number,
  model: string,
): Pick<ModelSpec, "gpuLayers" | "gpuSplit"> {
  const total = deviceLayers.reduce((sum, { layers }) => sum + layers, 0);
  if (total > modelLayers) {
    throw invalid(`device_layers expects at most the ${modelLayers} layers of "${model}"; got ${total}`);
  }
  if (total === 0) return { gpuLayers: 0, gpuSplit: null };
  const split = new Array<number>(gpus).fill(0);
  for (const { device, layers } of deviceLayers) split[device] = layers;
  const last = split.findLastIndex((layers) => layers > 0);
  split[last] = (split[last] ?? 0) + 1;
  return { gpuLayers: total + 1, gpuSplit: split };
}

async function layersOf(path: string): Promise<number> {
  const { fields } = await readTensorTable(path);
  const layers = fields.get(`${fields.get("general.architecture")}.block_count`);
  if (typeof layers === "number") return layers;
  throw invalid(`device_layers expects a model that says how many layers it has; ${path} does not`);
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message, { param: "device_layers" });
}
