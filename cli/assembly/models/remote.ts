// Remote models: builds the settings of a model that runs on other servers, and supplies the file with its vocabulary.
import { createHash } from "node:crypto";
import { mkdir, rename, writeFile } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { vocabularyHead } from "../../../engines/files/checkpoint/tokenizer/vocabulary-head.ts";
import { isCheckpoint } from "../../../engines/files/hub/choice/checkpoint-choice.ts";
import { convertedFolder, defaultCacheDirectory } from "../../../engines/files/hub/model-cache.ts";
import type { RemoteSettings } from "../../../engines/remote/upstream.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { Config, ModelConfig } from "../../config/config.ts";
import type { Progress } from "../../progress.ts";
import { resolveSource } from "./model-specs.ts";

/** Number of hexadecimal digits of the digest in the name of a vocabulary file. */
const digestDigits = 16;

/** Returns the settings of a model that runs on other servers; null if it runs on this machine. Throws config_invalid. */
export function remoteSettings(config: Config, { id, remote }: ModelConfig): RemoteSettings | null {
  const { url, remoteModel, apiKeyEnv, balance, remoteRetries } = remote;
  if (url === null) {
    if (config.troupe.engine !== "remote") return null;
    const message = `engine = "remote" expects a url for every model; got none for "${id}"`;
    throw new ServerError("config_invalid", message, { param: "url" });
  }
  return {
    urls: [...new Set([url].flat().map(baseOf))],
    model: remoteModel,
    apiKey: apiKeyEnv === null ? null : keyIn(apiKeyEnv),
    balance,
    slots: config.maxSeqs,
    retries: remoteRetries,
    connectTimeoutMs: remote.connectTimeoutSecs * 1000,
    firstTokenTimeoutMs: remote.firstTokenTimeoutSecs * 1000,
    stallTimeoutMs: remote.stallTimeoutSecs * 1000,
    probeIntervalMs: remote.probeIntervalSecs * 1000,
  };
}

/** Removes the path's final "/" and "/v1" from an address, because the paths of requests add them. */
function baseOf(url: string): string {
  const { origin, pathname } = new URL(url);
  return origin + pathname.replace(/\/+$/, "").replace(/\/v1$/, "");
}

function keyIn(variable: string): string {
  const key = process.env[variable] ?? "";
  if (/^[\x21-\x7e]+$/.test(key)) return key;
  const got = key === "" ? "it is not set" : "its value has characters that a header cannot have";
  const message = `api_key_env expects a variable with an API key; got ${variable}: ${got}`;
  throw new ServerError("config_invalid", message, { param: "api_key_env" });
}

/**
 * Returns the path of a GGUF file with the vocabulary and the chat template of a remote model: from the setting tok_model_id,
 * or else from the model itself. A tokenizer in the Hugging Face format is converted to a GGUF file in the cache.
 */
export async function vocabularyFile(
  config: Config,
  model: ModelConfig,
  log: Logger,
  progress: Progress,
): Promise<string> {
  const given = model.format.tokModelId;
  const source = given === null ? await resolveSource(config, model, log, progress) : resolve(given);
  if (source.endsWith(".gguf")) return source;
  const head = await vocabularyHead(isCheckpoint(source) ? dirname(source) : source, (message) =>
    log.warn({ model: model.id }, message),
  );
  const digest = createHash("sha256").update(head).digest("hex").slice(0, digestDigits);
  const folder = convertedFolder(defaultCacheDirectory(process.env));
  const path = join(folder, `vocabulary-${digest}.gguf`);
  await mkdir(folder, { recursive: true });
  // The file is written under a temporary name and then renamed, so that two servers may write it at the same time.
  const partial = `${path}.${process.pid}.partial`;
  await writeFile(partial, head);
  await rename(partial, path);
  return path;
}
