// Owns Config: every setting of the server, resolved once at start from defaults, file, environment and flags, in that
// order. It is frozen and made of plain values, so that any thread may have it. Called by cli/; it reads nothing itself.
import { ServerError } from "../errors.ts";
import {
  entryOfFlag,
  type FileValues,
  type Flags,
  type GivenValues,
  givenByEnvironment,
  givenByFile,
  givenByFlags,
} from "./given.ts";
import type { Command, ValuesOf } from "./key.ts";
import { type GroupName, type KeyEntry, keyEntries, type keys } from "./keys.ts";
import { notSupportedYet } from "./planned.ts";
import type { TomlFile } from "./toml.ts";

type Keys = typeof keys;

const modelIdEntry = entryOfFlag("--model-id");

/** Fields are named like the keys: `max_seqs` is `maxSeqs`, `[server] port` is `server.port`. */
export interface Config extends ValuesOf<Keys["general"]> {
  readonly command: Command;
  /** The model_id of one of the models. */
  readonly defaultModelId: string;
  /** At least one; ids differ. */
  readonly models: readonly ModelConfig[];
  readonly server: ValuesOf<Keys["server"]>;
  readonly pagedAttn: ValuesOf<Keys["pagedAttn"]>;
  readonly troupe: ValuesOf<Keys["troupe"]>;
  readonly bench: ValuesOf<Keys["bench"]>;
}

/** A model to load. Its templates are its own or else the general ones. */
export interface ModelConfig extends ValuesOf<Keys["models"]> {
  readonly modelId: string;
  /** The same for all models. */
  readonly device: { readonly cpu: boolean };
}

export interface ConfigRequest {
  readonly command: Command;
  readonly flags: Flags;
  readonly environment: Readonly<Record<string, string | undefined>>;
  readonly file?: TomlFile;
  /** The model_id used where neither flags nor a file name one. */
  readonly defaultModel: string;
}

/** Throws config_invalid, naming the flag, variable or line at fault. */
export function resolveConfig(request: ConfigRequest): Config {
  const { command } = request;
  const flags = givenByFlags(request.flags, command);
  const environment = givenByEnvironment(request.environment);
  const file = request.file === undefined ? undefined : givenByFile(request.file, command);
  const sources: GivenValues[] = [flags, environment, ...(file === undefined ? [] : [file.values])];

  const general = resolveGroup("general", command, sources);
  const perModel = modelSources(request, flags, file);
  const device = { cpu: resolveCpu(command, perModel) };
  const models = perModel.map((values) => {
    const model = resolveGroup("models", command, values);
    const chatTemplate = model.chatTemplate ?? general.chatTemplate;
    const jinjaExplicit = model.jinjaExplicit ?? general.jinjaExplicit;
    return { ...model, modelId: String(model.modelId), chatTemplate, jinjaExplicit, device };
  });
  const config: Config = {
    ...general,
    command,
    defaultModelId: checkModels(models, general.defaultModelId),
    models,
    server: resolveGroup("server", command, sources),
    pagedAttn: resolveGroup("pagedAttn", command, sources),
    troupe: resolveGroup("troupe", command, sources),
    bench: resolveGroup("bench", command, sources),
  };
  checkBench(config);
  return deepFreeze(config);
}

/** What is given for each model, strongest source first. Flags other than `-m` say something about every model. */
function modelSources(request: ConfigRequest, flags: GivenValues, file: FileValues | undefined): GivenValues[][] {
  const named = flags.get(modelIdEntry)?.value;
  const ofEvery = new Map([...flags].filter(([entry]) => entry !== modelIdEntry));
  const withId = (value: unknown, name: string) => [new Map([[modelIdEntry, { value, name }]]), ofEvery];
  if (named !== undefined) return [named].flat().map((id) => withId(id, modelIdEntry.flag));
  if (file === undefined) return [withId(request.defaultModel, "default model")];
  if (file.models.length === 0) {
    throw invalid(`${request.file?.path}: at least one model is expected; add [[models]] with a model_id, or give -m`);
  }
  for (const { values, place } of file.models) {
    if (!values.has(modelIdEntry)) throw invalid(`${place}: [[models]] expects a model_id; got none`);
  }
  return file.models.map(({ values }) => [ofEvery, values]);
}

/** The one value of `cpu` there may be: models that set it agree, and it then holds for all. */
function resolveCpu(command: Command, perModel: readonly GivenValues[][]): boolean {
  const set = new Set(perModel.map((sources) => resolveGroup("device", command, sources).cpu ?? undefined));
  set.delete(undefined);
  if (set.size > 1) throw invalid("cpu expects the same value in every [models.device]; got true and false");
  return set.has(true);
}

/** Checks the rules between models and returns the id of the default one. */
function checkModels(models: readonly ModelConfig[], wanted: string | null): string {
  const ids = models.map(({ modelId }) => modelId);
  const twice = ids.find((id, index) => ids.indexOf(id) !== index);
  if (twice !== undefined) throw invalid(`model_id "${twice}" is given twice; each model needs an id of its own`);
  const [first = ""] = ids;
  if (wanted === null) return first;
  if (ids.includes(wanted)) return wanted;
  throw invalid(`default_model_id expects one of ${ids.map((id) => `"${id}"`).join(", ")}; got "${wanted}"`);
}

function checkBench({ bench }: Config): void {
  if (bench.genLen > 0 && bench.depth.includes(0)) {
    throw invalid("--depth expects numbers above 0 where --gen-len is above 0; got 0");
  }
}

function resolveGroup<G extends GroupName>(
  group: G,
  command: Command,
  sources: readonly GivenValues[],
): ValuesOf<Keys[G]> {
  const values: Record<string, unknown> = {};
  for (const entry of keyEntries) {
    if (entry.group === group) values[entry.field] = resolveKey(entry, command, sources);
  }
  // The loop above sets each field of the group from its own key, which is what ValuesOf says.
  return values as ValuesOf<Keys[G]>;
}

function resolveKey(entry: KeyEntry, command: Command, sources: readonly GivenValues[]): unknown {
  const { key } = entry;
  const given = sources.map((values) => values.get(entry)).find((candidate) => candidate !== undefined);
  if (given === undefined) return key.defaultOf?.[command] ?? key.default;
  const { value, name } = given;
  if (key.planned?.some((planned) => planned === value)) throw invalid(`${name}: ${notSupportedYet(String(value))}`);
  const checked = key.type.safeParse(value);
  if (checked.success) return checked.data;
  throw new ServerError("config_invalid", `${name} expects ${key.expects}; got ${JSON.stringify(value)}`, {
    param: entry.name,
  });
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}

function deepFreeze<T>(value: T): T {
  if (typeof value !== "object" || value === null) return value;
  for (const inner of Object.values(value)) deepFreeze(inner);
  return Object.freeze(value);
}
