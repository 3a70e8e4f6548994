// LoRA adapters of a model, from the settings: fetches the adapters to load at start, and prepares the adapters that are part
// of the model (legacy_lora, xlora). Used by service-options.ts and bench.ts.
import { realpathSync, statSync } from "node:fs";
import type { ServedModel } from "../../../actors/front/inference-service.ts";
import type { PreloadedAdapter } from "../../../actors/lora-registry/model-adapters.ts";
import type { AdapterLimits, MixtureSpec } from "../../../engines/engine.ts";
import {
  type AdapterFetchOptions,
  type AdapterPlace,
  resolveAdapter,
  resolveMixture,
} from "../../../engines/files/hub/resolve-adapter.ts";
import { prepareMixture } from "../../../engines/files/lora/mixture/mixture.ts";
import { prepareMerged, type WeightedSource } from "../../../engines/files/lora/prepare.ts";
import type { PreparedAdapter } from "../../../engines/files/lora/prepared-adapter.ts";
import { largestFile } from "../../../engines/files/lora/source-path.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Config, ModelConfig } from "../../config/config.ts";
import type { Progress } from "../../progress.ts";
import { legacyAdapters } from "./legacy-lora.ts";

/** Values needed to fetch and prepare any adapter. */
export interface AdapterSetting {
  readonly config: Config;
  /** Folder for prepared adapters. */
  readonly folder: string;
  readonly log: Logger;
  readonly progress: Progress;
}

export type ModelAdapters = Pick<ServedModel, "adapters" | "ownAdapter"> & {
  /** Limits on the adapters for which the engine reserves memory; null if it reserves none. */
  readonly limits: AdapterLimits | null;
  /** X-LoRA: adapters that the engine weights for each token. */
  readonly mixture: MixtureSpec | null;
};

const noAdapters: ModelAdapters = { adapters: null, ownAdapter: null, limits: null, mixture: null };

/** Checks whether any model has adapters or may get some at run time. */
export function takesAdapters({ models }: Config): boolean {
  return models.some(({ adapter }) => isDynamic(adapter) || adapter.legacyLora !== null || adapter.xlora !== null);
}

/** Prepares the adapters of a model; `path` is the model's file. Throws a ServerError that names the adapter and the model. */
export async function modelAdapters(setting: AdapterSetting, model: ModelConfig, path: string): Promise<ModelAdapters> {
  const ownAdapter = await legacyAdapter(setting, model, path);
  if (ownAdapter !== null) {
    const { rank, bytes } = ownAdapter;
    return { ...noAdapters, ownAdapter, limits: { maxAdapters: 1, maxRank: rank, maxBytes: bytes } };
  }
  const mixture = await mixtureOf(setting, model, path);
  if (mixture !== null) return { ...noAdapters, mixture };
  if (!isDynamic(model.adapter)) return noAdapters;
  const limits = limitsOf(model);
  const preloaded: PreloadedAdapter[] = [];
  for (const entry of model.adapter.lora) preloaded.push(await preloadedAdapter(setting, model, entry));
  return { ...noAdapters, adapters: { limits, preloaded }, limits };
}

/** Fetches an adapter to load at start. Throws a ServerError that names the adapter and the model. */
export async function preloadedAdapter(
  setting: AdapterSetting,
  model: ModelConfig,
  { alias, source, revision }: ModelConfig["adapter"]["lora"][number],
): Promise<PreloadedAdapter> {
  const place = await naming(`lora "${alias}" of model "${model.id}"`, () =>
    fetchAdapter(setting, model, { label: alias, source, revision, member: null }),
  );
  return { alias, source, ...place };
}

export function limitsOf({ adapter }: ModelConfig): AdapterLimits {
  return { maxAdapters: adapter.loraMaxAdapters, maxRank: adapter.loraMaxRank, maxBytes: adapter.loraMaxBytes };
}

/** Returns the real path of SERVICE_LORA_ADAPTER_ROOT. Throws config_invalid if it is not a folder. */
export function adapterRoot({ server }: Pick<Config, "server">): string | null {
  const { loraAdapterRoot } = server;
  if (loraAdapterRoot === null) return null;
  let problem = "which is not a folder";
  try {
    if (statSync(loraAdapterRoot).isDirectory()) return realpathSync(loraAdapterRoot);
  } catch (error) {
    problem = `which cannot be opened (${(error as NodeJS.ErrnoException).code})`;
  }
  const message = `SERVICE_LORA_ADAPTER_ROOT expects a folder; got "${loraAdapterRoot}", ${problem}: create it, or unset the variable`;
  throw new ServerError("config_invalid", message, { param: "SERVICE_LORA_ADAPTER_ROOT" });
}

function isDynamic({ enableLora, lora }: ModelConfig["adapter"]): boolean {
  return enableLora || lora.length > 0;
}

async function legacyAdapter(
  setting: AdapterSetting,
  model: ModelConfig,
  modelPath: string,
): Promise<PreparedAdapter | null> {
  const { legacyLora, legacyLoraOrder } = model.adapter;
  if (legacyLora === null) return null;
  const adapters = await legacyAdapters([legacyLora].flat(), legacyLoraOrder);
  return naming(`legacy_lora of model "${model.id}"`, async () => {
    const sources: WeightedSource[] = [];
    for (const { source, member } of adapters) {
      const { path } = await fetchAdapter(setting, model, { label: member ?? source, source, member });
      sources.push({ source: path, weight: 1 });
    }
    const { maxRank, maxBytes } = limitsOf(model);
    // The rank of a merged adapter is the sum of the ranks of its sources, so the rank limit is multiplied by the number of
    // sources.
    const limits = { maxRank: maxRank * sources.length, maxBytes };
    return prepareMerged(sources, { root: null, modelPath, limits, folder: setting.folder });
  });
}

/** Fetches and prepares the X-LoRA of a model; null if it has none. `modelPath` is the model's file. */
export async function mixtureOf(
  setting: AdapterSetting,
  model: ModelConfig,
  modelPath: string,
): Promise<MixtureSpec | null> {
  const { xlora, xloraOrder: orderFile, tgtNonGranularIndex: keptAfter } = model.adapter;
  if (xlora === null) return null;
  return naming(`xlora of model "${model.id}"`, async () => {
    const { path: source } = await resolveMixture(xlora, fetchOptions(setting, model, xlora));
    return prepareMixture({ source, orderFile, modelPath, limits: limitsOf(model), folder: setting.folder, keptAfter });
  });
}

interface AdapterSource {
  /** Name shown in the progress display. */
  readonly label: string;
  readonly source: string;
  readonly member: string | null;
  readonly revision?: string;
}

function fetchAdapter(
  setting: AdapterSetting,
  model: ModelConfig,
  { label, source, ...which }: AdapterSource,
): Promise<AdapterPlace> {
  return resolveAdapter(source, { ...which, ...fetchOptions(setting, model, label) });
}

/** Returns the options for fetching an adapter. `label`: name shown in the progress display. */
function fetchOptions(
  { config, log, progress }: AdapterSetting,
  model: ModelConfig,
  label: string,
): AdapterFetchOptions {
  const { id, device } = model;
  return {
    maxFileBytes: largestFile(limitsOf(model).maxBytes),
    tokenSource: config.tokenSource,
    hfCache: device.hfCache,
    ...(progress.signal && { signal: progress.signal }),
    onNotice: (message) => log.info({ model: id, adapter: label }, message),
    onProgress: ({ phase, doneBytes, totalBytes }) => progress.update(`${phase} ${label}`, doneBytes, totalBytes),
  };
}

/** Runs `work`. If it throws a ServerError, adds `subject` to the error's message. */
async function naming<T>(subject: string, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (cause) {
    if (!(cause instanceof ServerError)) throw cause;
    throw new ServerError(cause.code, `${subject}: ${cause.message}`, { param: "lora", cause });
  }
}
