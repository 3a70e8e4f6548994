// Slice file: the slices of a MatFormer model, as CSV or JSON. The columns are those of the table that Google publishes for
// Gemma 3n, which mistral.rs reads, too. A JSON file is a list of objects whose fields have the names of the columns.
import { readFile, stat } from "node:fs/promises";
import { ServerError } from "../../../../runtime/errors.ts";
import { describeValue, quote } from "../../gguf/invalid-file.ts";
import { isObject } from "../config.ts";
import { csvRows } from "./csv.ts";

/** A smaller model inside a MatFormer model. Plain data. */
export interface MatformerSlice {
  readonly name: string;
  /** Feed-forward length of each layer that is kept. */
  readonly feedForward: readonly number[];
  /** Layers that are left out, in ascending order. */
  readonly skipped: readonly number[];
}

const columns = {
  name: "name",
  layers: "# Layers",
  feedForward: "FFN Hidden Dims",
  skipped: "Layers Skipped",
} as const;
const maxFileBytes = 2 ** 20;
const maxSlices = 1000;
const maxLayers = 1000;
const maxLength = 2 ** 24;

/** Reads all slices of a file, in its order. Throws `config_invalid`, which names the file, the slice and the column. */
export async function readSlices(path: string): Promise<readonly MatformerSlice[]> {
  const text = await read(path);
  const records = text.trimStart().startsWith("[") ? jsonRecords(text, path) : csvRecords(text, path);
  if (records.length > maxSlices) throw invalid(path, `it has ${records.length} slices; at most ${maxSlices} are read`);
  const slices = records.map((record) => sliceOf(record, path));
  const twice = slices.find(({ name }, i) => slices.findIndex((other) => other.name === name) < i);
  if (twice !== undefined) throw invalid(path, `it has two slices with the name ${quote(twice.name)}`);
  return slices;
}

/** Returns the slice with this name. Throws `config_invalid`, which lists the names in the file. */
export async function readSlice(path: string, name: string): Promise<MatformerSlice> {
  const slices = await readSlices(path);
  const found = slices.find((slice) => slice.name === name);
  if (found !== undefined) return found;
  const known = slices.map((slice) => quote(slice.name)).join(", ");
  throw new ServerError(
    "config_invalid",
    `matformer_slice_name expects a slice of ${path}: ${known || "it has none"}; got ${quote(name)}`,
    { param: "matformer_slice_name" },
  );
}

async function read(path: string): Promise<string> {
  try {
    const { size } = await stat(path);
    if (size > maxFileBytes) throw invalid(path, `it has ${size} bytes; at most ${maxFileBytes} are read`);
    return (await readFile(path, "utf8")).replace(/^\uFEFF/, "");
  } catch (cause) {
    if (cause instanceof ServerError) throw cause;
    throw invalid(path, `it cannot be read (${(cause as NodeJS.ErrnoException).code})`);
  }
}

function csvRecords(text: string, path: string): Readonly<Record<string, unknown>>[] {
  const [head = [], ...rows] = csvRows(text, (line, problem) => invalid(path, `line ${line} ${problem}`));
  for (const needed of [columns.name, columns.feedForward]) {
    if (!head.includes(needed)) throw invalid(path, `its first line lacks the column ${quote(needed)}`);
  }
  return rows.map((row, i) => {
    if (row.length <= head.length) return Object.fromEntries(row.map((field, at) => [head[at], field]));
    throw invalid(path, `row ${i + 1} has ${row.length} fields; its first line has ${head.length}`);
  });
}

function jsonRecords(text: string, path: string): Readonly<Record<string, unknown>>[] {
  try {
    const records: unknown = JSON.parse(text);
    if (Array.isArray(records) && records.every(isObject)) return records;
  } catch (cause) {
    throw invalid(path, `it is no JSON: ${(cause as Error).message}`);
  }
  throw invalid(path, "it is no list of objects");
}

function sliceOf(record: Readonly<Record<string, unknown>>, path: string): MatformerSlice {
  const name = record[columns.name];
  if (typeof name !== "string" || name === "") {
    throw invalid(path, `a slice has the name ${describeValue(name)}; expected a text`);
  }
  const problem = (column: string, value: unknown, expected: string) =>
    invalid(path, `slice ${quote(name)} has ${quote(column)}: ${describeValue(value)}; expected ${expected}`);
  const list = (column: string, least: number, most: number): number[] => {
    const value = record[column];
    const numbers = numbersOf(value);
    if (numbers?.every((one) => one >= least && one <= most) && numbers.length <= maxLayers) return numbers;
    throw problem(column, value, `a list of up to ${maxLayers} whole numbers from ${least} to ${most}`);
  };
  const feedForward = list(columns.feedForward, 1, maxLength);
  const isWhole = [undefined, null, ""].some((nothing) => record[columns.skipped] === nothing);
  const skipped = isWhole ? [] : list(columns.skipped, 0, maxLayers);
  const layers = record[columns.layers] ?? feedForward.length;
  if (feedForward.length !== Number(layers)) {
    throw problem(columns.feedForward, feedForward.length, `${layers} lengths, one for each layer that is kept`);
  }
  if (new Set(skipped).size < skipped.length)
    throw problem(columns.skipped, record[columns.skipped], "each layer once");
  return { name, feedForward, skipped: skipped.sort((one, other) => one - other) };
}

/** Parses a list of integers, or a string such as `[2_048 * 4, 8192]`, where `*` multiplies; null for another value. */
function numbersOf(value: unknown): number[] | null {
  if (Array.isArray(value)) return value.every((one) => Number.isSafeInteger(one)) ? value : null;
  const [, inner] = typeof value === "string" ? (/^\s*\[([^[\]]*)\]\s*$/.exec(value) ?? []) : [];
  if (inner === undefined) return null;
  if (inner.trim() === "") return [];
  const numbers = inner.split(",").map((part) => {
    const factors = part.split("*").map((factor) => factor.trim());
    const isProduct = factors.length <= 2 && factors.every((factor) => /^\d[\d_]{0,15}$/.test(factor));
    return isProduct
      ? factors.reduce((product, factor) => product * Number(factor.replaceAll("_", "")), 1)
      : Number.NaN;
  });
  return numbers.every(Number.isSafeInteger) ? numbers : null;
}

function invalid(path: string, problem: string): ServerError {
  return new ServerError("config_invalid", `matformer_config_path names ${path}: ${problem}`, {
    param: "matformer_config_path",
  });
}
