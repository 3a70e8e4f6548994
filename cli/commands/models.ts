// `troupe models`: lists recommended models with size, memory need and the command that serves them, and the models that are on
// this machine: in the caches, and in the folders of Ollama and LM Studio.
import { dirname } from "node:path";
import arg from "arg";
import { unknownClass } from "../../engines/files/checkpoint/checkpoint.ts";
import { type CachedModel, listCachedModels } from "../../engines/files/hub/cached-models.ts";
import { catalog, memoryBytes, shownContext } from "../../engines/files/hub/catalog.ts";
import { isCheckpoint } from "../../engines/files/hub/choice/checkpoint-choice.ts";
import { findCached } from "../../engines/files/hub/hub-model.ts";
import { parseHubSource } from "../../engines/files/hub/hub-source.ts";
import { listForeignModels } from "../../engines/files/hub/other-programs.ts";
import { ServerError } from "../../runtime/errors.ts";
import { availableMemory } from "../../runtime/host/memory.ts";
import { modelCaches } from "./model-caches.ts";
import { sizeText, textTable } from "./table.ts";
import { modelsFlags } from "./tool-flags.ts";

const usage = "troupe models [--json]";
const adapterFile = /(?:^|\/)adapter_model\.safetensors$/i;

/** Model on this machine, with its name as accepted by `-m`. */
interface LocalModel {
  readonly source: string;
  readonly bytes: number;
  /** Reason why `serve -m` would refuse the model; null if none is known. */
  readonly refusal: string | null;
}

/** Runs the command; `args` are the words after `troupe models`. Throws config_invalid for unknown arguments. */
export async function modelsCommand(args: readonly string[]): Promise<void> {
  const flags = parse(args);
  if (flags["--help"]) return void process.stdout.write(`${usage}\n`);
  const availableBytes = availableMemory();
  const local = await localModels(process.env);
  const text = flags["--json"] ? json(availableBytes, local) : report(availableBytes, local);
  process.stdout.write(`${text}\n`);
}

async function localModels(environment: NodeJS.ProcessEnv): Promise<LocalModel[]> {
  const caches = modelCaches(environment);
  const cached = (await listCachedModels(caches)).filter(({ files }) => files.length > 0);
  const own = cached.map(async (model) => {
    return { source: model.id, bytes: model.diskBytes, refusal: await refusalOf(model, caches.hubCache) };
  });
  const foreign = (await listForeignModels(environment)).map((model) => ({ ...model, refusal: null }));
  return [...(await Promise.all(own)), ...foreign];
}

/** Checks the names of a model's files, and its config.json; no weights are read. */
async function refusalOf({ id, files }: CachedModel, cache: string): Promise<string | null> {
  if (files.every(({ name }) => adapterFile.test(name))) return "a LoRA adapter: give it to --lora";
  const source = parseHubSource(id);
  const path = source === null ? null : await findCached({ source, cache });
  if (path === null || !isCheckpoint(path)) return null;
  try {
    const name = await unknownClass(dirname(path));
    return name === null ? null : `the architecture ${JSON.stringify(name)} cannot be loaded from safetensors`;
  } catch (error) {
    return (error as Error).message;
  }
}

function report(availableBytes: number, local: readonly LocalModel[]): string {
  const rows = catalog.map((model) => {
    const needed = memoryBytes(model);
    const fits = needed <= availableBytes ? "yes" : "no";
    return [model.name, sizeText(model.bytes), sizeText(needed), fits, model.licence, model.about];
  });
  const here = local.map(({ source, bytes, refusal }) => {
    return [source, sizeText(bytes), refusal === null ? `troupe serve -m ${source}` : `not served: ${refusal}`];
  });
  const parts = [
    textTable([["MODEL", "DOWNLOAD", "MEMORY", "FITS", "LICENCE", "FOR"], ...rows]),
    `MEMORY is with a context of ${shownContext} tokens; FITS compares it with the free main memory, ` +
      `${sizeText(availableBytes)}.\nServe one: troupe serve -m NAME. Other models: -m OWNER/NAME of the model hub, or -m FILE.`,
    here.length === 0 ? "No models are on this machine yet." : `On this machine:\n${textTable(here)}`,
  ];
  return parts.join("\n\n");
}

function json(availableBytes: number, local: readonly LocalModel[]): string {
  const recommended = catalog.map((model) => ({
    name: model.name,
    source: model.source,
    bytes: model.bytes,
    memory_bytes: memoryBytes(model),
    fits: memoryBytes(model) <= availableBytes,
    licence: model.licence,
    about: model.about,
  }));
  return JSON.stringify({ available_memory_bytes: availableBytes, recommended, local }, null, 2);
}

function parse(args: readonly string[]) {
  try {
    const { _: words, ...flags } = arg(modelsFlags, { argv: [...args] });
    if (words.length > 0) throw new ServerError("config_invalid", `unexpected "${words[0]}"; models expects ${usage}`);
    return flags;
  } catch (cause) {
    if (!(cause instanceof arg.ArgError)) throw cause;
    throw new ServerError("config_invalid", `${cause.message}; models expects ${usage}`, { cause });
  }
}
