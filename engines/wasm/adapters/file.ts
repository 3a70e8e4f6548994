// Owns reading the head of a prepared adapter (engines/lora/prepared-adapter.ts) and finding the place of each pair of
// matrices. Our own code has written the file for this model: what does not fit is an error, and nothing is passed over.
import { ServerError } from "../../../runtime/errors.ts";
import { readTensorTable, type TensorInfo, tensorTypes } from "../../gguf/tensors.ts";
import type { AdapterRanks } from "./layout.ts";
import type { AdapterPlace } from "./places.ts";

const f16 = 1;

/** What an adapter adds to one matrix. */
export interface AdapterPair {
  readonly rank: number;
  readonly a: TensorInfo;
  readonly b: TensorInfo;
}

export interface AdapterFile {
  readonly path: string;
  /** By place, then by matrix. */
  readonly pairs: readonly (readonly (AdapterPair | undefined)[])[];
  /** Of all tensors. */
  readonly bytes: number;
}

/** Throws lora_device_load_failed naming the tensor, or what reading any GGUF file throws. */
export async function readAdapterFile(
  path: string,
  places: readonly AdapterPlace[],
  maxRank: number,
): Promise<AdapterFile> {
  const { tensors } = await readTensorTable(path);
  let taken = 0;
  let bytes = 0;
  const pairs = places.map(({ matrices }) =>
    matrices.map(({ tensor, rows, columns }): AdapterPair | undefined => {
      const a = tensors.get(`${tensor.name}.lora_a`);
      const b = tensors.get(`${tensor.name}.lora_b`);
      if (!a && !b) return undefined;
      const rank = a?.shape[1] ?? 1;
      if (rank > maxRank) throw loadFailed(`has rank ${rank} for "${tensor.name}", where up to ${maxRank} can be`);
      checkTensor(a, `${tensor.name}.lora_a`, [columns, rank]);
      checkTensor(b, `${tensor.name}.lora_b`, [rank, rows]);
      taken += 2;
      bytes += a.bytes + b.bytes;
      return { rank, a, b };
    }),
  );
  if (taken !== tensors.size) throw loadFailed(`has tensors of no use here: ${strangers(tensors, pairs)}`);
  return { path, pairs, bytes };
}

export function ranksOf({ pairs }: AdapterFile): AdapterRanks {
  return pairs.map((place) => place.map((pair) => pair?.rank ?? 0));
}

/** Of files that are stacked into one adapter. */
export function stackedRanks(ranks: readonly AdapterRanks[]): AdapterRanks {
  return ranks.reduce((sum, own) => sum.map((place, i) => place.map((rank, j) => rank + (own[i]?.[j] ?? 0))));
}

export function loadFailed(problem: string, cause?: unknown): ServerError {
  return new ServerError("lora_device_load_failed", `the adapter ${problem}`, { cause });
}

function checkTensor(
  tensor: TensorInfo | undefined,
  name: string,
  [columns, rows]: readonly [number, number],
): asserts tensor is TensorInfo {
  if (!tensor) throw loadFailed(`has no tensor "${name}", but the other half of it`);
  const [foundColumns, foundRows = 1, ...more] = tensor.shape;
  const type = tensorTypes.get(tensor.type)?.name;
  const fits = foundColumns === columns && foundRows === rows && more.every((length) => length === 1);
  if (fits && tensor.type === f16) return;
  throw loadFailed(`has "${name}" as ${type} ${tensor.shape.join(" x ")}, where F16 ${columns} x ${rows} belongs`);
}

function strangers(tensors: ReadonlyMap<string, TensorInfo>, pairs: AdapterFile["pairs"]): string {
  const known = new Set(pairs.flat().flatMap((pair) => (pair ? [pair.a.name, pair.b.name] : [])));
  const names = [...tensors.keys()].filter((name) => !known.has(name));
  return names
    .slice(0, 3)
    .map((name) => JSON.stringify(name))
    .join(", ");
}
