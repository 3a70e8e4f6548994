// Importance from a text (setting `calibration_file`): the text is run through the model once. The result is kept in the cache
// for later starts, as long as the text and the model's file do not change.
import { createHash } from "node:crypto";
import { readFile, stat } from "node:fs/promises";
import { basename, join, resolve } from "node:path";
import { chunkTokens, collectFromText, type TextOptions } from "../../../engines/calibration/collect-from-text.ts";
import { shardPaths } from "../../../engines/files/gguf/shards.ts";
import { defaultCacheDirectory } from "../../../engines/files/hub/model-cache.ts";
import { type Importance, readImportance } from "../../../engines/quantization/importance/importance-file.ts";
import { writeImportance } from "../../../engines/quantization/importance/importance-writer.ts";
import { ServerError } from "../../../runtime/errors.ts";

const maxTextBytes = 256 * 2 ** 20;
const keyDigits = 16;
/** Version of the algorithm. It is increased when the same text and model lead to different results. */
const version = 1;

/** Returns the folder of importance matrices in this program's cache. */
export function calibrationFolder(): string {
  return join(defaultCacheDirectory(process.env), "calibration");
}

/**
 * Returns the importance of the weight columns of the GGUF file at `path` for the text in `file`. Throws config_invalid if the
 * text cannot be read, or if the wasm engine cannot run the model. `onCollect` is called before the text is run through the
 * model, which happens only if no result is cached.
 */
export async function importanceOfText(
  path: string,
  file: string,
  { onCollect, ...options }: Omit<TextOptions, "text"> & { readonly onCollect: () => void },
): Promise<Importance> {
  const text = await readText(resolve(file));
  const stem = basename(path).replace(/\.gguf$/i, "");
  const target = join(calibrationFolder(), `${stem}-${(await keyOf(path, text)).slice(0, keyDigits)}.gguf`);
  const isKnown = await stat(target).then(
    () => true,
    () => false,
  );
  if (!isKnown) {
    onCollect();
    const { sums, chunks } = await collectFromText(path, { ...options, text });
    await writeImportance(target, sums, { dataset: basename(file), chunkTokens, chunks });
  }
  return await readImportance(target);
}

async function keyOf(path: string, text: string): Promise<string> {
  const hash = createHash("sha256").update(`${version}\n`);
  for (const shard of shardPaths(path)) {
    const { size, mtimeMs } = await stat(shard);
    hash.update(`${shard}\n${size}\n${mtimeMs}\n`);
  }
  return hash.update(text).digest("hex");
}

async function readText(path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    if (size > maxTextBytes) throw unreadable(path, `has ${size} bytes; at most ${maxTextBytes} are read`);
    return await readFile(path, "utf8");
  } catch (cause) {
    if (cause instanceof ServerError) throw cause;
    throw unreadable(path, `cannot be read (${(cause as NodeJS.ErrnoException).code})`);
  }
}

function unreadable(path: string, problem: string): ServerError {
  return new ServerError("config_invalid", `calibration_file names ${path}, which ${problem}`, {
    param: "calibration_file",
  });
}
