// Topology: a YAML file that sets the quantization of single layers. The key of an entry is a range of layers or a regular expression; its
// value states the level as `isq`:
//
//   0-8:
//     isq: Q3K
//   12:
//     isq: Q8_0
//   "/ffn_down/":
//     isq: Q6K
//
// A range excludes its end. A regular expression is matched against the GGUF name of a tensor. The first entry that matches a tensor is
// used.
import { parse, YAMLError } from "yaml";
import { ServerError } from "../../../runtime/errors.ts";
import { type Level, parseLevel } from "./levels.ts";

/** Rule that sets the quantization of the tensors that it covers. */
export interface LayerRule {
  /** Key of the entry in the file: a range of layers or a regular expression. */
  readonly key: string;
  /** Level of the tensors; null = they are not quantized. */
  readonly level: Level | null;
  covers(tensor: string): boolean;
}

/** Maximum number of entries. */
const maxRules = 4096;
const range = /^(\d{1,6})(?:-(\d{1,6}))?$/;
const expression = /^\/(.{1,512})\/$/s;

/** Parses the text of a topology file; `path` is named in errors. Throws config_invalid. */
export function parseTopology(text: string, path: string): LayerRule[] {
  const entries = [...readEntries(text, path)];
  if (entries.length > maxRules) throw invalid(path, `expected up to ${maxRules} entries; got ${entries.length}`);
  const ranges: { readonly first: number; readonly end: number; readonly key: string }[] = [];
  return entries.map(([key, value]) => {
    const level = levelOf(path, key, value);
    const pattern = expression.exec(key)?.[1];
    if (pattern !== undefined) return { key, level, covers: matcher(path, key, pattern) };
    const [, from, to] = range.exec(key) ?? [];
    if (from === undefined) {
      throw invalid(path, `"${key}" expects a layer (12), a range of layers (0-8) or an expression between slashes`);
    }
    const first = Number(from);
    const end = to === undefined ? first + 1 : Number(to);
    if (end <= first) throw invalid(path, `the range "${key}" is empty; its end is not in the range`);
    const other = ranges.find((one) => one.first < end && first < one.end);
    if (other) throw invalid(path, `the ranges "${other.key}" and "${key}" overlap`);
    ranges.push({ first, end, key });
    return { key, level, covers: (tensor) => isBetween(layerOf(tensor), first, end) };
  });
}

/** Reads the entries in the order of the file, as a Map, because an object would put numeric keys first. */
function readEntries(text: string, path: string): ReadonlyMap<string, unknown> {
  let parsed: unknown;
  try {
    parsed = parse(text, { maxAliasCount: 0, mapAsMap: true });
  } catch (cause) {
    if (!(cause instanceof YAMLError) && !(cause instanceof ReferenceError)) throw cause;
    throw invalid(path, `it is not YAML: ${cause.message}`);
  }
  if (parsed instanceof Map) return new Map([...parsed].map(([key, value]) => [String(key), plain(value)]));
  throw invalid(path, "expected a mapping of layers to settings");
}

function plain(value: unknown): unknown {
  return value instanceof Map ? Object.fromEntries(value) : value;
}

function levelOf(path: string, key: string, value: unknown): Level | null {
  if (value === null || typeof value !== "object" || Array.isArray(value)) {
    throw invalid(path, `"${key}" expects settings such as "isq: Q4K"`);
  }
  const { isq = null, device, ...others } = value as Readonly<Record<string, unknown>>;
  const [unknown] = Object.keys(others);
  if (unknown !== undefined) throw invalid(path, `"${key}" has the unknown setting "${unknown}"; isq is known`);
  if (device !== undefined) {
    throw invalid(path, `"${key}" names a device; layers cannot be placed one by one: remove it, or use --cpu`);
  }
  if (isq === null) return null;
  if (typeof isq === "string" || typeof isq === "number") return parseLevel(isq, `isq of "${key}" in ${path}`);
  throw invalid(path, `isq of "${key}" expects a quantization level`);
}

function matcher(path: string, key: string, pattern: string): (tensor: string) => boolean {
  try {
    const compiled = new RegExp(pattern, "u");
    return (tensor) => compiled.test(tensor);
  } catch (cause) {
    throw invalid(path, `"${key}" is not a regular expression: ${(cause as Error).message}`);
  }
}

function layerOf(tensor: string): number {
  return Number(/^blk\.(\d+)\./.exec(tensor)?.[1] ?? Number.NaN);
}

function isBetween(layer: number, first: number, end: number): boolean {
  return layer >= first && layer < end;
}

function invalid(path: string, problem: string): ServerError {
  return new ServerError("config_invalid", `the topology file ${path}: ${problem}`, { param: "topology" });
}
