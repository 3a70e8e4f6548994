// Pooling of an embedding model: the pair pooling_type, from the files of sentence-transformers in the checkpoint.
import { join } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { quote } from "../gguf/invalid-file.ts";
import { isObject, type JsonObject } from "./config.ts";
import { readJsonObject, readJsonValue } from "./json-file.ts";

/** Values of pooling_type. */
const kinds: Readonly<Record<string, number>> = { mean: 1, cls: 2, lasttoken: 3 };
const flags: Readonly<Record<string, number>> = {
  ...{ pooling_mode_mean_tokens: 1, pooling_mode_cls_token: 2, pooling_mode_lasttoken: 3 },
};
/** A folder beside config.json, such as `1_Pooling`. */
const folderName = /^[\w-]{1,64}$/;

/** Returns the pooling type; null if the checkpoint names none. Throws `unsupported` if no engine has it. */
export async function readPoolingType(folder: string): Promise<number | null> {
  const modules = await readJsonValue(join(folder, "modules.json"));
  const pooling = (Array.isArray(modules) ? modules : []).filter(isObject).find(({ type }) => isPooling(type));
  if (pooling === undefined) return null;
  const name = pooling.path;
  if (typeof name !== "string" || !folderName.test(name)) {
    throw new ServerError(
      "model_file_invalid",
      `${join(folder, "modules.json")} has no valid "path" for the module Pooling; fetch it again`,
    );
  }
  const path = join(folder, name, "config.json");
  const config = await readJsonObject(path);
  if (config === null) throw new ServerError("model_file_invalid", `${path} is missing; fetch the model again`);
  return typeOf(path, config);
}

function isPooling(type: unknown): boolean {
  return typeof type === "string" && type.endsWith("Pooling");
}

function typeOf(path: string, config: JsonObject): number {
  const [, flagged] = Object.entries(flags).find(([name]) => config[name] === true) ?? [];
  const mode = config.pooling_mode;
  const named = typeof mode === "string" && Object.hasOwn(kinds, mode) ? kinds[mode] : undefined;
  const type = flagged ?? named;
  if (type !== undefined) return type;
  throw new ServerError(
    "unsupported",
    `${path} asks for a pooling ${mode === undefined ? "" : `${quote(String(mode))} `}that the engines do not have; ` +
      "they have mean, cls and lasttoken: use another model",
    { param: "pooling_mode" },
  );
}
