// Setting legacy_lora: the adapters to merge into a model when it is loaded. An optional order file selects some of them. Used
// by model-adapters.ts.
import { readFile } from "node:fs/promises";
import { basename } from "node:path";
import { z } from "zod";
import { ServerError } from "../../../runtime/errors.ts";

/** Adapter of legacy_lora: a source, or one of several adapters in a source. */
export interface LegacyAdapter {
  readonly source: string;
  readonly member: string | null;
}

const maxOrderBytes = 16 * 2 ** 20;
/** Schema of the order file. Its other fields are not used. */
const orderType = z.object({
  order: z
    .array(z.string().trim().min(1))
    .min(1)
    .refine((names) => new Set(names).size === names.length),
});

/** Returns all sources, or only the adapters that the order file names. Throws config_invalid. */
export async function legacyAdapters(
  sources: readonly string[],
  orderFile: string | null,
): Promise<readonly LegacyAdapter[]> {
  if (orderFile === null) return sources.map((source) => ({ source, member: null }));
  const names = await readOrder(orderFile);
  return names.map((name) => adapterOf(name, sources, orderFile));
}

/** Returns the adapter with this name. `name` is the name of a source or, if there is only one source, of an adapter in it. */
function adapterOf(name: string, sources: readonly string[], orderFile: string): LegacyAdapter {
  const named = sources.find((source) => source === name) ?? sources.find((source) => nameOf(source) === name);
  if (named !== undefined) return { source: named, member: null };
  const [only, ...others] = sources;
  if (only !== undefined && others.length === 0) return { source: only, member: name };
  const known = sources.map((source) => `"${nameOf(source)}"`).join(", ");
  throw invalid(`"${orderFile}": order expects names of the adapters in legacy_lora: ${known}; got "${name}"`);
}

/** Returns the short name of a source: the last part of its path or of its hub name. */
function nameOf(source: string): string {
  return basename(source.replace(/@[^/]*$/, "")).replace(/\.gguf$/i, "");
}

async function readOrder(path: string): Promise<readonly string[]> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (cause) {
    throw invalid(`legacy_lora_order expects a file; "${path}" cannot be read: ${(cause as Error).message}`, cause);
  }
  const parsed = orderType.safeParse(text.length > maxOrderBytes ? null : readJson(text));
  if (parsed.success) return parsed.data.order;
  throw invalid(
    `"${path}" expects a JSON object whose "order" is a list of names, each once; got a file of another form`,
  );
}

function readJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function invalid(message: string, cause?: unknown): ServerError {
  return new ServerError("config_invalid", message, { param: "legacy_lora_order", cause });
}
