// Adapter preparation: finds a LoRA adapter's files, checks them against the model, and writes them in the format
// described in prepared-adapter.ts. Preparation takes long, so it must not run on a thread that serves requests.
import { DefaultMap } from "../../../runtime/collections.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { AdapterLimits } from "../../engine.ts";
import { readTensorTable, type TensorTable } from "../gguf/tensors.ts";
import { invalidAdapter, reading, writing } from "./adapter-problems.ts";
import { readGgufAdapter } from "./gguf-adapter.ts";
import { type LoraPair, readFloats } from "./lora-pair.ts";
import { readPeftAdapter } from "./peft/peft-adapter.ts";
import type { PreparedAdapter } from "./prepared-adapter.ts";
import { type PairValues, type PreparedShape, preparedBytes, writePrepared } from "./prepared-file.ts";
import type { SourceFile } from "./source-file.ts";
import { openSource } from "./source-path.ts";

export interface PrepareOptions {
  /** Path of a folder with adapter_config.json and adapter_model.safetensors, or of a GGUF adapter. */
  readonly source: string;
  /** Folder in which the real path of every file must lie; null = no restriction. */
  readonly root: string | null;
  /** Path of the model's GGUF file, from which names, shapes and architecture are read. */
  readonly modelPath: string;
  readonly limits: Pick<AdapterLimits, "maxRank" | "maxBytes">;
  /** Folder for the prepared file, `<generation>.gguf`. An existing file of that name has the same content. */
  readonly folder: string;
}

export interface WeightedSource {
  readonly source: string;
  readonly weight: number;
}

/** An adapter whose files are open and whose header has been checked. */
interface OpenAdapter {
  readonly source: string;
  readonly pairs: readonly LoraPair[];
}

/** Change of one matrix by one adapter. */
interface Part {
  readonly source: string;
  readonly pair: LoraPair;
}

interface Matrix extends PreparedShape {
  readonly parts: readonly Part[];
}

/** Prepares one adapter. Throws the error codes of an adapter's path, files, content and limits. */
export function prepareAdapter({ source, ...options }: PrepareOptions): Promise<PreparedAdapter> {
  return prepareMerged([{ source, weight: 1 }], options);
}

/**
 * Prepares several adapters as one adapter, whose effect is their weighted sum and whose rank is the sum of their
 * ranks.
 */
export async function prepareMerged(
  sources: readonly WeightedSource[],
  { root, modelPath, limits, folder }: Omit<PrepareOptions, "source">,
): Promise<PreparedAdapter> {
  const model = await readTensorTable(modelPath);
  const files: { readonly source: string; readonly file: SourceFile }[] = [];
  try {
    const adapters: OpenAdapter[] = [];
    for (const { source, weight } of sources) {
      adapters.push(
        await reading(source, async () => {
          const opened = await openSource(source, { root, maxBytes: limits.maxBytes });
          const ofSource = opened.kind === "peft" ? [opened.config, opened.weights] : [opened.file];
          files.push(...ofSource.map((file) => ({ source, file })));
          const pairs = opened.kind === "peft" ? readPeftAdapter(opened, model) : readGgufAdapter(opened.file, model);
          return { source, pairs: weighted(await pairs, weight) };
        }),
      );
    }
    const matrices = gather(adapters);
    const rank = checkLimits(matrices, limits);
    const finish = async (): Promise<void> => {
      for (const { source, file } of files) await reading(source, () => file.checkUnchanged());
    };
    const written = await writing(() =>
      writePrepared(folder, architectureOf(model), matrices, { read: readMatrix, finish }),
    );
    return { ...written, rank, bytes: preparedBytes(matrices) };
  } finally {
    for (const { file } of files) await file.close();
  }
}

function weighted(pairs: readonly LoraPair[], weight: number): LoraPair[] {
  if (pairs.length === 0) throw invalidAdapter("it has no tensors");
  const names = new Set<string>();
  for (const { name } of pairs) {
    if (names.has(name)) throw invalidAdapter(`two of its modules map to ${name} of the model`);
    names.add(name);
  }
  return pairs.map((pair) => ({ ...pair, scale: pair.scale * weight }));
}

/** Groups the changes by matrix, sorted by name, so that the same adapters always give the same file. */
function gather(adapters: readonly OpenAdapter[]): Matrix[] {
  const parts = adapters.flatMap(({ source, pairs }) => pairs.map((pair): Part => ({ source, pair })));
  const byName = new DefaultMap<string, Part[]>(() => []);
  for (const part of parts) byName.get(part.pair.name).push(part);
  const matrices = [...byName].map(([name, own]): Matrix => {
    const { rows = 0, columns = 0 } = own[0]?.pair ?? {};
    return { name, rows, columns, rank: own.reduce((sum, { pair }) => sum + pair.rank, 0), parts: own };
  });
  return matrices.sort((one, other) => (one.name < other.name ? -1 : 1));
}

/** Checks the limits and returns the highest rank. Throws if a limit is exceeded. */
function checkLimits(matrices: readonly Matrix[], { maxRank, maxBytes }: PrepareOptions["limits"]): number {
  const highest = matrices.reduce((one, other) => (other.rank > one.rank ? other : one));
  if (highest.rank > maxRank) {
    throw new ServerError(
      "lora_rank_limit_exceeded",
      `the adapter has rank ${highest.rank} for ${highest.name}; at most ${maxRank} is allowed: raise lora_max_rank`,
    );
  }
  const bytes = preparedBytes(matrices);
  if (bytes <= maxBytes) return highest.rank;
  throw new ServerError(
    "lora_byte_limit_exceeded",
    `the adapter takes ${bytes} bytes; at most ${maxBytes} are allowed: raise lora_max_bytes`,
  );
}

function architectureOf({ fields }: TensorTable): string {
  return String(fields.get("general.architecture"));
}

/** Reads the parts of a matrix and joins them: along the rows of `a`, and along the columns of `b`. */
async function readMatrix({ rows, columns, rank, parts }: Matrix): Promise<PairValues> {
  const a = new Float32Array(rank * columns);
  const b = new Float32Array(rows * rank);
  let from = 0;
  for (const { source, pair } of parts) {
    a.set(await reading(source, () => readFloats(pair.a)), from * columns);
    const own = await reading(source, () => readFloats(pair.b));
    for (let row = 0; row < rows; row++) {
      const ownRow = pair.rank * sourceRow(row, rows, pair.turnedHeads);
      for (let k = 0; k < pair.rank; k++) b[row * rank + from + k] = pair.scale * (own[ownRow + k] as number);
    }
    from += pair.rank;
  }
  return { a, b };
}

/** Returns the row of b that belongs to row `row` of the model's matrix; see LoraPair.turnedHeads. */
function sourceRow(row: number, rows: number, turnedHeads: number): number {
  if (turnedHeads === 0) return row;
  const headRows = rows / turnedHeads;
  const inHead = row % headRows;
  return row - inHead + (inHead >> 1) + (inHead % 2) * (headRows / 2);
}
