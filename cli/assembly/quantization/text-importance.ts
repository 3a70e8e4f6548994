// Importance from a text (setting `calibration_file`): the text is run through the model once; later starts find the result in the
// cache, by the contents of the text and the state of the model's file.
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
/** Version of the collection. It changes when the same text and model give other sums. */
const version = 1;

/** Folder of importance matrices in this program's cache. */
export function calibrationFolder(): string {
  return join(defaultCacheDirectory(process.env), "calibration");
}

/**
 * Returns the importance of the columns of the GGUF file at `path` for the text in `file`. Throws config_invalid if the text cannot be
 * read, or if the wasm engine cannot run the model. `onCollect` is called if the text has not been run through the model before.
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
