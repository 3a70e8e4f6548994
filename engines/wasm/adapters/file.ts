// Adapter file: reads the header of a prepared adapter (engines/files/lora/prepared-adapter.ts) and finds the site of
// each pair of LoRA matrices A and B. A site is a group of model matrices with the same input (sites.ts). The server
// itself wrote the file for this model, so every mismatch is an error. If a matrix has no site, the error names the
// matrix. If a tensor consists of several matrices, its pair becomes one pair per matrix. These pairs share A, and each
// has its own rows of B.
import { ServerError } from "../../../runtime/errors.ts";
import { readTensorTable, type TensorInfo, tensorTypes } from "../../files/gguf/tensors.ts";
import type { AdapterRanks } from "../plan/mixture.ts";
import type { AdapterSite } from "./sites.ts";

const f16 = 1;

/** Pair of matrices A and B by which an adapter changes one matrix of the model. */
export interface AdapterPair {
  readonly rank: number;
  readonly a: TensorInfo;
  /** B, limited to the rows of the changed matrix. */
  readonly b: TensorInfo;
}

export interface AdapterFile {
  readonly path: string;
  /** Pairs of A and B by site (group of matrices with the same input), then by matrix; undefined: the matrix is not changed. */
  readonly pairs: readonly (readonly (AdapterPair | undefined)[])[];
  /** Bytes of all tensors in the file. */
  readonly bytes: number;
}

/**
 * Reads the header of a prepared adapter. Throws invalid_lora_adapter or lora_device_load_failed naming the tensor, or
 * the errors of reading any GGUF file.
 */
export async function readAdapterFile(
  path: string,
  sites: readonly AdapterSite[],
  maxRank: number,
): Promise<AdapterFile> {
  const { tensors } = await readTensorTable(path);
  const pairs = sites.map(({ matrices }) =>
    matrices.map(({ tensor, firstRow, rows, columns }): AdapterPair | undefined => {
      const a = tensors.get(`${tensor.name}.lora_a`);
      const b = tensors.get(`${tensor.name}.lora_b`);
      if (!a && !b) return undefined;
      const rank = a?.shape[1] ?? 1;
      if (rank > maxRank) throw loadFailed(`has rank ${rank} for "${tensor.name}"; expected at most ${maxRank}`);
      checkTensor(a, `${tensor.name}.lora_a`, [columns, rank]);
      checkTensor(b, `${tensor.name}.lora_b`, [rank, tensor.shape[1] ?? 1]);
      return { rank, a, b: rowsOf(b, firstRow, rows) };
    }),
  );
  const known = new Set(pairs.flat().flatMap((pair) => (pair ? [pair.a.name, pair.b.name] : [])));
  const strangers = [...tensors.keys()].filter((name) => !known.has(name));
  if (strangers.length > 0) throw withoutSite(strangers);
  return { path, pairs, bytes: [...tensors.values()].reduce((sum, tensor) => sum + tensor.bytes, 0) };
}

export function ranksOf({ pairs }: AdapterFile): AdapterRanks {
  return pairs.map((site) => site.map((pair) => pair?.rank ?? 0));
}

/** Returns the ranks of the stacked adapter: for each matrix, the sum of the ranks of all files. */
export function stackedRanks(ranks: readonly AdapterRanks[]): AdapterRanks {
  return ranks.reduce((sum, own) => sum.map((site, i) => site.map((rank, j) => rank + (own[i]?.[j] ?? 0))));
}

export function loadFailed(problem: string, cause?: unknown): ServerError {
  return new ServerError("lora_device_load_failed", `the adapter ${problem}`, { cause });
}

function checkTensor(
  tensor: TensorInfo | undefined,
  name: string,
  [columns, rows]: readonly [number, number],
): asserts tensor is TensorInfo {
  if (!tensor) throw loadFailed(`has no tensor "${name}", only the other one of the pair`);
  const [foundColumns, foundRows = 1, ...more] = tensor.shape;
  const type = tensorTypes.get(tensor.type)?.name;
  const fits = foundColumns === columns && foundRows === rows && more.every((length) => length === 1);
  if (fits && tensor.type === f16) return;
  throw loadFailed(`has "${name}" as ${type} ${tensor.shape.join(" x ")}; expected F16 ${columns} x ${rows}`);
}

/** Returns a tensor description of `rows` rows of B, from row `firstRow` on. */
function rowsOf(b: TensorInfo, firstRow: number, rows: number): TensorInfo {
  const [rank = 1, allRows = 1] = b.shape;
  const bytes = b.bytes / allRows;
  return { ...b, shape: [rank, rows], offset: b.offset + firstRow * bytes, bytes: rows * bytes };
}

function withoutSite(strangers: readonly string[]): ServerError {
  const odd = strangers.filter((name) => !/\.lora_[ab]$/.test(name));
  if (odd.length > 0) return loadFailed(`has unexpected tensors: ${odd.slice(0, 3).join(", ")}`);
  const changed = [...new Set(strangers.map((name) => name.replace(/\.lora_[ab]$/, "")))];
  const names = changed.slice(0, 3).map((name) => JSON.stringify(name));
  return new ServerError(
    "invalid_lora_adapter",
    `the adapter changes ${names.join(", ")}; the wasm engine applies no adapters to experts or their router: ` +
      "choose an adapter without them, or use --engine llama for this model",
  );
}
