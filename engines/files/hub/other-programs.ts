// Models that other programs have downloaded: `ollama:NAME[:TAG]` and `lmstudio:PUBLISHER/REPOSITORY[/FILE]`. The
// folders of these programs are never written. Called by resolve-model.ts and cli/commands/models.ts.
import type { Dirent } from "node:fs";
import { readdir, readFile, stat } from "node:fs/promises";
import { join } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { homeFolder } from "../../../runtime/host/home.ts";
import { suggestion } from "../../../runtime/nearest.ts";
import { expandHome } from "./api/hub-locations.ts";
import type { Environment } from "./download/fetch-options.ts";
import { findLocalModel } from "./local-model.ts";

export interface ForeignModel {
  /** Name as accepted by `-m`. */
  readonly source: string;
  readonly bytes: number;
}

const ollamaPrefix = "ollama:";
const lmStudioPrefix = "lmstudio:";
const latest = "latest";
/** Namespace of models without a publisher. */
const library = "library";
const modelLayer = "application/vnd.ollama.image.model";
const maxManifestBytes = 2 ** 20;
const digestPattern = /^sha256:[0-9a-f]{64}$/;

/** Whether `source` names a model of another program. */
export function isForeignSource(source: string): boolean {
  return source.startsWith(ollamaPrefix) || source.startsWith(lmStudioPrefix);
}

/**
 * Returns the path of the file that `source` names. If there is no such file, throws `model_file_invalid` with the
 * nearest existing name.
 */
export async function resolveForeignModel(
  source: string,
  quantizedFile: string | null,
  environment: Environment,
): Promise<string> {
  const path = source.startsWith(ollamaPrefix)
    ? await findOllamaModel(source.slice(ollamaPrefix.length), environment)
    : await findLmStudioModel(source.slice(lmStudioPrefix.length), quantizedFile);
  if (path !== null) return path;
  const known = (await listForeignModels(environment)).map((model) => model.source);
  throw new ServerError("model_file_invalid", `no model "${source}"${suggestion(source, known)}; see troupe models`, {
    param: "model_id",
  });
}

/** Lists the models of Ollama and LM Studio, sorted by name. */
export async function listForeignModels(environment: Environment): Promise<ForeignModel[]> {
  const models = [...(await listOllama(environment)), ...(await listLmStudio())];
  return models.sort((a, b) => (a.source < b.source ? -1 : 1));
}

/** Folders with Ollama's models: the folder that OLLAMA_MODELS names, or those of the user and of the Linux service. */
function ollamaFolders(environment: Environment): string[] {
  const named = environment.OLLAMA_MODELS;
  if (named) return [expandHome(named)];
  return [join(homeFolder(), ".ollama", "models"), "/usr/share/ollama/.ollama/models"];
}

function lmStudioFolders(): string[] {
  return [join(homeFolder(), ".lmstudio", "models"), join(homeFolder(), ".cache", "lm-studio", "models")];
}

async function findOllamaModel(name: string, environment: Environment): Promise<string | null> {
  for await (const { source, path } of ollamaModels(environment)) {
    const given = `${ollamaPrefix}${name}`;
    if (source === given || source === `${given}:${latest}`) return await findLocalModel(path, null);
  }
  return null;
}

async function findLmStudioModel(name: string, quantizedFile: string | null): Promise<string | null> {
  const given = `${lmStudioPrefix}${name}`;
  for await (const { source, folder, file } of lmStudioModels()) {
    if (source === given) return await findLocalModel(join(folder, file), quantizedFile);
    if (source.startsWith(`${given}/`)) return await findLocalModel(folder, quantizedFile);
  }
  return null;
}

async function listOllama(environment: Environment): Promise<ForeignModel[]> {
  const models: ForeignModel[] = [];
  for await (const { source, path } of ollamaModels(environment)) {
    const bytes = await sizeOf(path);
    if (bytes !== null) models.push({ source, bytes });
  }
  return models;
}

/** Yields the models of Ollama's manifests, `manifests/HOST/NAMESPACE/NAME/TAG`, and the path of each model's file. */
async function* ollamaModels(environment: Environment): AsyncGenerator<{ source: string; path: string }> {
  for (const folder of ollamaFolders(environment)) {
    const manifests = join(folder, "manifests");
    for (const host of await foldersIn(manifests)) {
      for (const namespace of await foldersIn(join(manifests, host))) {
        for (const name of await foldersIn(join(manifests, host, namespace))) {
          for (const tag of await filesIn(join(manifests, host, namespace, name))) {
            const digest = await modelDigest(join(manifests, host, namespace, name, tag));
            if (digest === null) continue;
            const shown = namespace === library ? name : `${namespace}/${name}`;
            yield {
              source: `${ollamaPrefix}${shown}:${tag}`,
              path: join(folder, "blobs", digest.replace(":", "-")),
            };
          }
        }
      }
    }
  }
}

/** Reads the digest of the model's file from a manifest; null if the manifest has none or cannot be read. */
async function modelDigest(path: string): Promise<string | null> {
  try {
    if ((await stat(path)).size > maxManifestBytes) return null;
    const { layers } = JSON.parse(await readFile(path, "utf8")) as { readonly layers?: unknown };
    if (!Array.isArray(layers)) return null;
    for (const layer of layers as readonly { readonly mediaType?: unknown; readonly digest?: unknown }[]) {
      const { mediaType, digest } = layer ?? {};
      if (mediaType === modelLayer && typeof digest === "string" && digestPattern.test(digest)) return digest;
    }
    return null;
  } catch {
    return null;
  }
}

async function listLmStudio(): Promise<ForeignModel[]> {
  const models: ForeignModel[] = [];
  for await (const { source, folder, file } of lmStudioModels()) {
    const bytes = await sizeOf(join(folder, file));
    if (bytes !== null) models.push({ source, bytes });
  }
  return models;
}

/** Yields the model files of LM Studio, `PUBLISHER/REPOSITORY/FILE`. */
async function* lmStudioModels(): AsyncGenerator<{ source: string; folder: string; file: string }> {
  for (const root of lmStudioFolders()) {
    for (const publisher of await foldersIn(root)) {
      for (const repository of await foldersIn(join(root, publisher))) {
        const folder = join(root, publisher, repository);
        const files = (await filesIn(folder)).filter((name) => /\.gguf$/i.test(name) && !/mmproj/i.test(name));
        for (const file of files) yield { source: `${lmStudioPrefix}${publisher}/${repository}/${file}`, folder, file };
      }
    }
  }
}

async function foldersIn(path: string): Promise<string[]> {
  return await namesIn(path, (entry) => entry.isDirectory());
}

async function filesIn(path: string): Promise<string[]> {
  return await namesIn(path, (entry) => !entry.isDirectory());
}

/** Lists a folder's entries; none if it cannot be read. */
async function namesIn(path: string, isWanted: (entry: Dirent) => boolean): Promise<string[]> {
  const entries = await readdir(path, { withFileTypes: true }).catch(() => []);
  return entries.filter(isWanted).map(({ name }) => name);
}

async function sizeOf(path: string): Promise<number | null> {
  return await stat(path).then(
    ({ size }) => size,
    () => null,
  );
}
