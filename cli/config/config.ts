// Config: all settings, resolved once at start from defaults, file, environment and flags; later sources override earlier ones.
// It is frozen plain data, so it can be sent to any thread.
import { ServerError } from "../../runtime/errors.ts";
import { givenByEnvironment } from "./environment.ts";
import { type FileValues, type Flags, type Given, type GivenValues, givenByFile, givenByFlags } from "./given.ts";
import type { Command, Key, ValuesOf } from "./key.ts";
import { entryAt, type GroupName, isPerModel, type KeyEntry, keyEntries, type keys } from "./keys.ts";
import {
  checkBench,
  checkPorts,
  checkRules,
  checkSearch,
  checkTune,
  commonCpu,
  defaultModelOf,
  type GivenSettings,
  nameOf,
} from "./rules.ts";
import { givenBySettings, type TroupeSettings } from "./settings.ts";
import type { TomlFile } from "./toml.ts";

type Keys = typeof keys;

const modelIdEntry = entryAt("models", "modelId");
const aliasEntry = entryAt("models", "alias");

/** Resolved settings. Fields are named after the keys: `max_seqs` is `maxSeqs`, `[server] port` is `server.port`. */
export interface Config extends ValuesOf<Keys["general"]>, ValuesOf<Keys["agentic"]> {
  readonly command: Command;
  /** Id of the default model, which is one of the models. */
  readonly defaultModelId: string;
  /** Models to load: at least one, with unique ids. */
  readonly models: readonly ModelConfig[];
  readonly server: ValuesOf<Keys["server"]>;
  readonly pagedAttn: ValuesOf<Keys["pagedAttn"]>;
  readonly sandbox: ValuesOf<Keys["sandbox"]>;
  readonly search: ValuesOf<Keys["search"]>;
  readonly speech: ValuesOf<Keys["speech"]>;
  readonly diffusion: ValuesOf<Keys["diffusion"]>;
  readonly troupe: ValuesOf<Keys["troupe"]>;
  readonly run: ValuesOf<Keys["run"]>;
  readonly bench: ValuesOf<Keys["bench"]>;
  readonly tune: ValuesOf<Keys["tune"]>;
  /** Origins of the settings that are not defaults. */
  readonly origins: readonly Origin[];
}

/** Where the value of a setting comes from. `field`: name of the setting in Config. */
export interface Origin extends Omit<Given, "value"> {
  readonly group: GroupName;
  readonly field: string;
  /** Index of the model in `models`; null if the setting does not belong to a model. */
  readonly model: number | null;
}

/**
 * Model to load. Settings that are also general keys, such as the chat template, have the value of the general key if they are
 * not set for this model.
 */
export interface ModelConfig extends ValuesOf<Keys["models"]> {
  /** Name of the model in requests and messages: its alias, or its model_id. */
  readonly id: string;
  /** Source of the model: a path, or a name on the hub or in a package index. */
  readonly modelId: string;
  readonly sampling: ValuesOf<Keys["sampling"]>;
  readonly format: ValuesOf<Keys["format"]>;
  readonly embedding: ValuesOf<Keys["embedding"]>;
  readonly quantization: ValuesOf<Keys["quantization"]>;
  readonly adapter: ValuesOf<Keys["adapter"]>;
  readonly remote: ValuesOf<Keys["remote"]>;
  readonly multimodal: ValuesOf<Keys["multimodal"]>;
  /** Device settings; `cpu` has the same value for all models. */
  readonly device: ValuesOf<Keys["device"]> & { readonly cpu: boolean };
}

export interface ConfigRequest {
  readonly command: Command;
  readonly flags: Flags;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly file?: TomlFile;
  /** Settings of an embedding program. `file` is then absent. */
  readonly settings?: TroupeSettings;
  /** model_id to use if the settings name no model. */
  readonly defaultModel: string;
}

/**
 * Resolves the settings. Checks names first, then types, then rules between settings, and last whether the feature is
 * implemented. Throws config_invalid that names the invalid flag, variable or line.
 */
export function resolveConfig(request: ConfigRequest): Config {
  const { command } = request;
  const given = givenSettings(request);
  checkRules(given);
  if (command === "tune") checkTune(given);
  const cpu = commonCpu(given);
  const defaultModelId = defaultModelOf(given);
  for (const values of [given.shared, ...given.models]) refusePlanned(values);

  const { shared } = given;
  const general = resolveGroup("general", command, shared);
  const config: Config = {
    ...general,
    ...resolveGroup("agentic", command, shared),
    command,
    defaultModelId,
    models: given.models.map((values) => resolveModel(command, values, general, cpu)),
    server: resolveGroup("server", command, shared),
    pagedAttn: resolveGroup("pagedAttn", command, shared),
    sandbox: resolveGroup("sandbox", command, shared),
    search: resolveGroup("search", command, shared),
    speech: resolveGroup("speech", command, shared),
    diffusion: resolveGroup("diffusion", command, shared),
    troupe: resolveGroup("troupe", command, shared),
    run: resolveGroup("run", command, shared),
    bench: resolveGroup("bench", command, shared),
    tune: resolveGroup("tune", command, shared),
    origins: [...originsOf(shared, null), ...given.models.flatMap(originsOf)],
  };
  checkBench(config.bench);
  checkPorts(config.server);
  checkSearch(config);
  return deepFreeze(config);
}

function givenSettings(request: ConfigRequest): GivenSettings {
  const { command } = request;
  const flags = givenByFlags(request.flags, command);
  const environment = givenByEnvironment(request.environment, command);
  const file = request.file === undefined ? undefined : givenByFile(request.file, command);
  const own = request.settings === undefined ? undefined : givenBySettings(request.settings);
  const sources = [flags, ...valuesOf(own), environment, ...valuesOf(file)];
  return {
    shared: checkedValues(sources, ({ group }) => !isPerModel(group)),
    models: modelSources(request, [flags, environment], file ?? (own?.models.length ? own : undefined)).map((own) =>
      checkedValues(own, ({ group }) => isPerModel(group)),
    ),
  };
}

function originsOf(values: GivenValues, model: number | null): readonly Origin[] {
  const given = [...values].filter(([, { source }]) => source !== "default");
  return given.map(([{ group, field }, { source, name, place }]) => ({ group, field, model, source, name, place }));
}

function valuesOf(source: FileValues | undefined): readonly GivenValues[] {
  return source === undefined ? [] : [source.values];
}

/**
 * Returns the settings of each model, highest precedence first. Flags and variables other than the names of models apply to
 * every model.
 */
function modelSources(
  request: ConfigRequest,
  sources: readonly GivenValues[],
  file: FileValues | undefined,
): GivenValues[][] {
  const first = (entry: KeyEntry) => sources.flatMap((source) => source.get(entry) ?? [])[0];
  const ofEvery = sources.map(
    (source) => new Map([...source].filter(([entry]) => entry !== modelIdEntry && entry !== aliasEntry)),
  );
  const withAlias = (models: GivenValues[][]) => addAliases(models, first(aliasEntry));
  const withId = (given: Given) => [new Map([[modelIdEntry, given]]), ...ofEvery];
  const named = first(modelIdEntry);
  if (named !== undefined) return withAlias([named.value].flat().map((value) => withId({ ...named, value })));
  if (file === undefined)
    return withAlias([withId({ value: request.defaultModel, source: "default", name: "default model", place: null })]);
  if (file.models.length === 0) {
    throw invalid(
      `${request.file?.path}: expected at least one model; got none: add [[models]] with a model_id, or use -m`,
    );
  }
  for (const { values, place } of file.models) {
    if (values.has(modelIdEntry)) continue;
    throw invalid(
      request.file === undefined
        ? `${place} expects a modelId; got none`
        : `${place}: [[models]] expects a model_id; got none`,
    );
  }
  return withAlias(file.models.map(({ values }) => [...ofEvery, values]));
}

/** Returns whether any source names a model: a flag, an environment variable, a file or an embedding program. */
export function namesModel(request: Omit<ConfigRequest, "defaultModel">): boolean {
  const { flags, environment, command, file, settings } = request;
  const isGiven = flags[modelIdEntry.flag] !== undefined || (settings?.models ?? []).length > 0;
  return isGiven || file !== undefined || givenByEnvironment(environment, command).has(modelIdEntry);
}

/** Adds the names given by `--alias` to the models, in order. Throws config_invalid if the counts differ. */
function addAliases(sources: GivenValues[][], given: Given | undefined): GivenValues[][] {
  if (given === undefined) return sources;
  const aliases = [given.value].flat();
  if (aliases.length !== sources.length) {
    throw invalid(
      `${given.name} expects one name for each model, in order; got ${aliases.length} for ${sources.length} models`,
    );
  }
  return sources.map((own, index) => [new Map([[aliasEntry, { ...given, value: aliases[index] }]]), ...own]);
}

/** Returns the value of highest precedence for each key that is set, after checking it. */
function checkedValues(sources: readonly GivenValues[], isWanted: (entry: KeyEntry) => boolean): GivenValues {
  const values = new Map<KeyEntry, Given>();
  for (const [entry, given] of sources.flatMap((source) => [...source])) {
    if (isWanted(entry) && !values.has(entry)) values.set(entry, { ...given, value: checkedValue(entry, given) });
  }
  return values;
}

function checkedValue({ key, name: param }: KeyEntry, { value, name, place }: Given): unknown {
  if (isPlannedValue(key, value)) return value;
  const checked = key.type.safeParse(value);
  if (checked.success) return checked.data;
  const came = key.secret ? "another value, not shown here" : JSON.stringify(value);
  const message = `${place === null ? "" : `${place}: `}${name} expects ${key.expects}; got ${came}`;
  throw new ServerError("config_invalid", message, { param });
}

/**
 * Rejects the first setting of a feature that is not implemented. The setting is accepted if its value describes the behaviour
 * without the feature.
 */
function refusePlanned(values: GivenValues): void {
  for (const [{ key }, { value, name, place }] of values) {
    const isPlanned = key.planned && !key.holds?.includes(value);
    if (!isPlanned && !isPlannedValue(key, value)) continue;
    const holding = (key.holds ?? []).map((held) => JSON.stringify(held)).join(" or ");
    const remedy = holding === "" ? "remove it" : `remove it, or set it to ${holding}`;
    const subject = isPlanned ? `"${name}"` : `${name}: "${value}"`;
    const problem = key.never ?? "is not supported yet by this version of troupe";
    throw invalid(`${place === null ? "" : `${place}: `}${subject} ${problem}; ${remedy}`);
  }
}

function isPlannedValue(key: Key, value: unknown): boolean {
  return key.plannedValues?.some((planned) => planned === value) ?? false;
}

function resolveModel(
  command: Command,
  given: GivenValues,
  general: ValuesOf<Keys["general"]>,
  cpu: boolean,
): ModelConfig {
  const model = resolveGroup("models", command, given);
  return {
    ...model,
    id: nameOf(given),
    modelId: String(model.modelId),
    chatTemplate: model.chatTemplate ?? general.chatTemplate,
    jinjaExplicit: model.jinjaExplicit ?? general.jinjaExplicit,
    matformerConfigPath: model.matformerConfigPath ?? general.matformerConfigPath,
    matformerSliceName: model.matformerSliceName ?? general.matformerSliceName,
    sampling: resolveGroup("sampling", command, given),
    format: resolveGroup("format", command, given),
    embedding: resolveGroup("embedding", command, given),
    quantization: resolveGroup("quantization", command, given),
    adapter: resolveGroup("adapter", command, given),
    remote: resolveGroup("remote", command, given),
    multimodal: resolveGroup("multimodal", command, given),
    device: { ...resolveGroup("device", command, given), cpu },
  };
}

/**
 * Returns the settings of a model that is added while the server runs: the defaults, and the general keys, which apply to all
 * models.
 */
export function addedModel(config: Config, modelId: string): ModelConfig {
  const given = new Map([[modelIdEntry, { value: modelId, source: "default", name: "model", place: null } as const]]);
  const model = resolveModel(
    config.command,
    given,
    config,
    config.models.every(({ device }) => device.cpu),
  );
  return { ...model, device: { ...model.device, hfCache: config.models[0]?.device.hfCache ?? null } };
}

function resolveGroup<G extends GroupName>(group: G, command: Command, given: GivenValues): ValuesOf<Keys[G]> {
  const values: Record<string, unknown> = {};
  for (const entry of keyEntries) {
    const { key, field } = entry;
    if (entry.group !== group || key.planned) continue;
    const found = given.get(entry);
    values[field] = found === undefined ? (key.defaultOf?.[command] ?? key.default) : found.value;
  }
  // The loop above has set every implemented field of the group, as ValuesOf requires.
  return values as ValuesOf<Keys[G]>;
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}

function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  for (const inner of Object.values(value)) deepFreeze(inner);
  return Object.freeze(value);
}
