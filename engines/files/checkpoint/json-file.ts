// JSON file of a checkpoint: read up to a maximum size; errors name the file.
import { type FileHandle, open } from "node:fs/promises";
import { ServerError } from "../../../runtime/errors.ts";
import { accessFailure } from "../access-failure.ts";
import { isObject, type JsonObject } from "./config.ts";

/** Maximum size of a JSON file. The index of the largest models has about 20 MB. */
const maxBytes = 64 * 1024 * 1024;

/** Reads a JSON object; null if there is no such file. Throws the errors of accessFailure. */
export async function readJsonObject(path: string): Promise<JsonObject | null> {
  const value = await readJsonValue(path);
  if (value === null || isObject(value)) return value;
  throw invalidJson(path, "it is not a JSON object");
}

/** Reads a JSON value; null if there is no such file. Throws the errors of accessFailure. */
export async function readJsonValue(path: string): Promise<unknown> {
  const file = await openIfPresent(path);
  if (file === null) return null;
  try {
    const { size } = await file.stat();
    if (size > maxBytes) throw invalidJson(path, `it has ${size} bytes; at most ${maxBytes} are read`);
    return JSON.parse(await file.readFile("utf8"));
  } catch (error) {
    if (error instanceof ServerError) throw error;
    throw invalidJson(path, error instanceof SyntaxError ? "it is not JSON" : String((error as Error).message));
  } finally {
    await file.close();
  }
}

async function openIfPresent(path: string): Promise<FileHandle | null> {
  try {
    return await open(path, "r");
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === "ENOENT" || code === "ENOTDIR") return null;
    throw accessFailure(error, `${path} cannot be opened (${code})`, "check its permissions");
  }
}

function invalidJson(path: string, problem: string): ServerError {
  return new ServerError("model_file_invalid", `${path} cannot be used: ${problem}; fetch it again`);
}
