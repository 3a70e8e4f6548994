// Startup rules: which settings conflict, and which require each other. Planned keys are checked too, before they are rejected.
// Called by config.ts with values that have valid types.
import { ServerError } from "../../runtime/errors.ts";
import type { Given, GivenValues } from "./given.ts";
import { entryAt, type KeyEntry } from "./keys.ts";

/** Settings given by the user: the shared settings, and the settings of each model. */
export interface GivenSettings {
  readonly shared: GivenValues;
  readonly models: readonly GivenValues[];
}

const agent = entryAt("agentic", "agent");
const search = [entryAt("agentic", "enableSearch"), agent];
const codeExecution = [entryAt("agentic", "enableCodeExecution"), agent];
const shell = [entryAt("agentic", "enableShell"), agent];
const tools = [...new Set([...search, ...codeExecution, ...shell])];
const input = [entryAt("run", "input")];
const quant = entryAt("quantization", "quant");
const matformerConfig = entryAt("general", "matformerConfigPath");
const prefixCacheDir = entryAt("troupe", "prefixCacheDir");
const enableLora = entryAt("adapter", "enableLora");
const lora = entryAt("adapter", "lora");
const legacyLora = entryAt("adapter", "legacyLora");
const xlora = entryAt("adapter", "xlora");
const url = entryAt("remote", "url");

/** Keys that require other keys. If the first key of a pair is set, at least one key of the list must also be set. */
const requirements: readonly (readonly [KeyEntry, readonly KeyEntry[]])[] = [
  [entryAt("agentic", "searchEmbeddingModel"), search],
  [entryAt("search", "provider"), search],
  [entryAt("search", "url"), search],
  [entryAt("search", "results"), search],
  [entryAt("agentic", "codeExecPython"), codeExecution],
  [entryAt("agentic", "codeExecTimeout"), codeExecution],
  [entryAt("agentic", "codeExecWorkdir"), codeExecution],
  [entryAt("agentic", "shellPath"), shell],
  [entryAt("agentic", "shellTimeout"), shell],
  [entryAt("agentic", "shellWorkdir"), shell],
  [entryAt("agentic", "skillsDir"), shell],
  [entryAt("quantization", "isqOrganization"), [entryAt("quantization", "isq"), quant]],
  [entryAt("general", "matformerSliceName"), [matformerConfig]],
  [entryAt("models", "matformerSliceName"), [entryAt("models", "matformerConfigPath"), matformerConfig]],
  [entryAt("adapter", "loraMaxAdapters"), [enableLora, lora]],
  [entryAt("adapter", "loraMaxRank"), [enableLora, lora, legacyLora, xlora]],
  [entryAt("adapter", "loraMaxBytes"), [enableLora, lora, legacyLora, xlora]],
  [entryAt("adapter", "legacyLoraOrder"), [legacyLora]],
  [entryAt("adapter", "xloraOrder"), [xlora]],
  [entryAt("adapter", "tgtNonGranularIndex"), [xlora]],
  [entryAt("remote", "remoteModel"), [url]],
  [entryAt("remote", "apiKeyEnv"), [url]],
  [entryAt("remote", "balance"), [url]],
  [entryAt("remote", "upstreamMode"), [url]],
  [entryAt("remote", "remoteRetries"), [url]],
  [entryAt("remote", "connectTimeoutSecs"), [url]],
  [entryAt("remote", "firstTokenTimeoutSecs"), [url]],
  [entryAt("remote", "stallTimeoutSecs"), [url]],
  [entryAt("remote", "probeIntervalSecs"), [url]],
  [entryAt("troupe", "prefixCacheDisk"), [prefixCacheDir]],
  [entryAt("troupe", "filesUrl"), [entryAt("troupe", "stateUrl")]],
  [entryAt("troupe", "allowedHosts"), [entryAt("server", "mcpPort"), entryAt("troupe", "corsOrigins")]],
  [entryAt("run", "folder"), tools],
  [entryAt("run", "yes"), tools],
  [entryAt("run", "session"), tools],
  [entryAt("run", "continueLast"), tools],
  [entryAt("run", "image"), input],
  [entryAt("run", "video"), input],
  [entryAt("run", "audio"), input],
];

const kvCache = entryAt("pagedAttn", "kvCache");
const gpuMemory = entryAt("pagedAttn", "gpuMemoryUtilization");
const pagedMode = entryAt("pagedAttn", "mode");
const speculation = entryAt("troupe", "speculation");
const draftModel = entryAt("troupe", "draftModel");
const mtpModel = entryAt("general", "mtpModel");
const mtpNPredict = entryAt("general", "mtpNPredict");

/**
 * Pairs of keys that cannot be set together. If `value` is present, the pair conflicts only if the first key has this value.
 */
const conflicts: readonly (readonly [KeyEntry, KeyEntry, value?: unknown])[] = [
  [kvCache, gpuMemory],
  [pagedMode, kvCache, "off"],
  [pagedMode, gpuMemory, "off"],
  [entryAt("general", "prefixCacheN"), prefixCacheDir, 0],
  [speculation, draftModel, "off"],
  [speculation, mtpModel, "off"],
  [speculation, mtpNPredict, "off"],
  [draftModel, mtpModel],
  [draftModel, mtpNPredict],
  [draftModel, entryAt("troupe", "maxModelDownloads")],
  [entryAt("models", "tokenizer"), entryAt("format", "tokModelId")],
  [quant, entryAt("quantization", "isq")],
  [quant, entryAt("quantization", "fromUqff")],
  [entryAt("quantization", "calibrationFile"), entryAt("quantization", "imatrix")],
  [entryAt("run", "yes"), entryAt("agentic", "agentPermission")],
  [entryAt("run", "session"), entryAt("run", "continueLast")],
  [entryAt("run", "session"), entryAt("run", "system")],
  [entryAt("run", "continueLast"), entryAt("run", "system")],
  // Settings that change or read weights cannot be combined with `url`, because a model with a `url` runs on another server,
  // which has the weights.
  [url, enableLora],
  [url, lora],
  [url, legacyLora],
  [url, xlora],
  [url, quant],
  [url, entryAt("quantization", "isq")],
  [url, entryAt("quantization", "fromUqff")],
  [url, entryAt("device", "topology")],
  [url, entryAt("format", "mmproj")],
  [url, entryAt("models", "tokenizer")],
  [url, mtpModel],
  [url, mtpNPredict],
  [entryAt("embedding", "pooling"), url, "tokens"],
  [enableLora, legacyLora],
  [enableLora, xlora],
  [lora, legacyLora],
  [lora, xlora],
  [legacyLora, xlora],
];

/** Checks all rules. Throws config_invalid for the first broken rule. */
export function checkRules({ shared, models }: GivenSettings): void {
  for (const model of models) {
    const find = (entry: KeyEntry): Given | undefined => {
      const given = model.get(entry) ?? shared.get(entry);
      return given === undefined || isOff(given.value) ? undefined : given;
    };
    for (const [entry, needed] of requirements) {
      const given = find(entry);
      // A value that equals the default does not require another setting.
      if (given?.value !== entry.key.default) checkRequirement(given, needed, find);
    }
    for (const [one, other, value] of conflicts) {
      const first = find(one);
      if (value === undefined || first?.value === value) checkConflict(first, find(other), value);
    }
    checkAliases(find(lora));
  }
  checkAdapter(shared.get(entryAt("general", "adapter")), models[0]?.get(lora));
}

/** Returns whether a value counts as unset: a switch that is off, or an empty list. */
function isOff(value: unknown): boolean {
  return value === false || (Array.isArray(value) && value.length === 0);
}

function checkRequirement(
  given: Given | undefined,
  needed: readonly KeyEntry[],
  find: (entry: KeyEntry) => Given | undefined,
): void {
  if (given === undefined || needed.some((entry) => find(entry) !== undefined)) return;
  const isFlag = given.place === null;
  const names = needed.map(({ flag, name }) => `"${isFlag ? flag : name}"`);
  throw invalid(`${before(given)}"${given.name}" requires ${[...new Set(names)].join(" or ")}; got none`);
}

function checkConflict(one: Given | undefined, other: Given | undefined, value: unknown): void {
  if (one === undefined || other === undefined) return;
  const otherPlace = other.place === null ? "" : ` (${other.place})`;
  const subject = `"${one.name}"${value === undefined ? "" : ` = "${value}"`}`;
  throw invalid(`${before(one)}${subject} conflicts with "${other.name}"${otherPlace}; remove one of them`);
}

function checkAliases(given: Given | undefined): void {
  const aliases = aliasesOf(given);
  const twice = aliases.find((alias, index) => aliases.indexOf(alias) !== index);
  if (given === undefined || twice === undefined) return;
  throw invalid(`${before(given)}${given.name} expects each alias once; got "${twice}" twice`);
}

/** Checks that the adapter chosen at start belongs to the first model, because the conversation begins with that model. */
function checkAdapter(wanted: Given | undefined, given: Given | undefined): void {
  const aliases = aliasesOf(given);
  if (wanted === undefined || aliases.some((alias) => alias === wanted.value)) return;
  const known = aliases.length === 0 ? "; the model has none: add --lora ALIAS=SOURCE" : `: ${aliases.join(", ")}`;
  throw invalid(
    `${before(wanted)}${wanted.name} expects the alias of an adapter in lora${known}; got "${wanted.value}"`,
  );
}

function aliasesOf(given: Given | undefined): readonly string[] {
  const entries = (given?.value ?? []) as readonly { readonly alias: string }[];
  return entries.map(({ alias }) => alias);
}

/** Returns the value of `cpu`, which applies to all models. All models that set it must have the same value. */
export function commonCpu({ models }: GivenSettings): boolean {
  const cpu = entryAt("device", "cpu");
  const set = models.flatMap((model) => model.get(cpu) ?? []);
  const [first] = set;
  const other = set.find(({ value }) => value !== first?.value);
  if (first === undefined || other === undefined) return first?.value === true;
  throw invalid(
    `${before(other)}cpu expects the same value for all models; got ${other.value}, and at ${first.place} ${first.value}`,
  );
}

const modelId = entryAt("models", "modelId");
const alias = entryAt("models", "alias");

/** Returns the name of a model in requests: its alias, or its model_id. */
export function nameOf(model: GivenValues): string {
  return String((model.get(alias) ?? model.get(modelId))?.value);
}

/**
 * Checks that the names of the models are unique. Returns the name of the default model, which default_model_id names by its name or, if
 * no other model has the same one, by its model_id.
 */
export function defaultModelOf({ shared, models }: GivenSettings): string {
  const ids = models.map(nameOf);
  const twice = ids.find((id, index) => ids.indexOf(id) !== index);
  if (twice !== undefined)
    throw invalid(`two models have the name "${twice}"; give each its own name with alias, or remove one`);
  const wanted = shared.get(entryAt("general", "defaultModelId"));
  const [first = ""] = ids;
  if (wanted === undefined) return first;
  if (ids.some((id) => id === wanted.value)) return String(wanted.value);
  const [found, ...others] = models.filter((model) => model.get(modelId)?.value === wanted.value);
  if (found !== undefined && others.length === 0) return nameOf(found);
  const known = ids.map((id) => `"${id}"`).join(", ");
  throw invalid(`${before(wanted)}${wanted.name} expects one of ${known}; got "${wanted.value}"`);
}

/** Checks that the two ports differ, because both servers listen on the same address. */
export function checkPorts({ port, mcpPort }: { readonly port: number; readonly mcpPort: number | null }): void {
  if (mcpPort === null || mcpPort === 0 || mcpPort !== port) return;
  throw invalid(`mcp_port expects another port than port; got ${mcpPort} for both`);
}

/**
 * Checks the benchmark settings: if tokens are generated, every context length (`depth`) must be above 0, because a sequence
 * cannot generate tokens from an empty context.
 */
export function checkBench({ genLen, depth }: { readonly genLen: number; readonly depth: readonly number[] }): void {
  if (genLen > 0 && depth.includes(0)) {
    throw invalid("--depth expects numbers above 0 if --gen-len is above 0; got 0");
  }
}

const deviceLayers = entryAt("device", "deviceLayers");

/**
 * Checks the settings of a tuning. They must not set what the tuning itself chooses: the quantization and the layers on GPUs.
 */
export function checkTune({ models }: GivenSettings): void {
  const layers = models.flatMap((model) => model.get(deviceLayers) ?? [])[0];
  if (layers !== undefined) {
    throw invalid(
      `${before(layers)}"${layers.name}" conflicts with tune, which puts all layers that fit on the GPU; remove it`,
    );
  }
  const given = models.flatMap((model) => model.get(quant) ?? []).find(({ value }) => value === "auto");
  if (given === undefined) return;
  throw invalid(
    `${before(given)}"${given.name}" = "auto" conflicts with tune, which chooses the quantization; remove it`,
  );
}

function before({ place }: Given): string {
  return place === null ? "" : `${place}: `;
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}

interface SearchSettings {
  readonly search: { readonly provider: string; readonly url: string | null; readonly apiKey: string | null };
  readonly searchEmbeddingModel: string | null;
  readonly models: readonly NamedModel[];
}

interface NamedModel {
  readonly id: string;
  readonly modelId: string;
}

/** Checks that all settings required by the search provider are set, and that the embedding model for search is served. */
export function checkSearch({ search, searchEmbeddingModel: name, models }: SearchSettings): void {
  const { provider, url, apiKey } = search;
  if (provider === "searxng" && url === null) {
    throw invalid('search_provider = "searxng" expects search_url, the address of a SearXNG server; got none');
  }
  if ((provider === "brave" || provider === "tavily") && apiKey === null) {
    throw invalid(
      `search_provider = "${provider}" expects a key in the variable SEARCH_API_KEY (search.apiKey of createTroupe); got none`,
    );
  }
  if (name === null || modelNamed(name, models) !== undefined) return;
  const known = models.map(({ id }) => id).join(", ");
  const message = `search_embedding_model expects the id or alias of a configured model (${known}); got "${name}"`;
  throw invalid(`${message}: add the model with -m and --alias`);
}

/** Returns the model with an id or alias. */
export function modelNamed<M extends NamedModel>(name: string | null, models: readonly M[]): M | undefined {
  return models.find(({ id, modelId }) => id === name || modelId === name);
}
