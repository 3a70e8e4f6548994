// Importance matrix: for each matrix of a model, the mean square of each column of its input. Encoders use it as weights of the columns'
// errors. This module reads the files of llama.cpp's llama-imatrix, which are GGUF files or binary files of earlier releases (.dat,
// .imatrix), and .cimatrix files.
import { readFile, stat } from "node:fs/promises";
import { ServerError } from "../../../runtime/errors.ts";
import { readTensorTable, type TensorInfo, type TensorTable } from "../../files/gguf/tensors.ts";
import { isCimatrix, parseCimatrix } from "./cimatrix.ts";

/**
 * Mean squares by the name of the tensor, or of the module (module-names.ts), which lacks the ending .weight. A tensor of experts has the
 * columns of all its matrices, one matrix after another. Columns without data have the value 1, so that they all have the same weight.
 */
export type Importance = ReadonlyMap<string, Float32Array>;

const maxFileBytes = 1024 ** 3;
const maxEntries = 65_536;
const maxNameBytes = 512;
const f32 = 0;
const sumsSuffix = ".in_sum2";
const countsSuffix = ".counts";

/** Reads an importance matrix. Throws `config_invalid`, which names the file and the problem. */
export async function readImportance(path: string): Promise<Importance> {
  const bytes = await read(path);
  if (isCimatrix(path)) {
    const limits = { maxEntries, maxNameBytes, invalid: (problem: string) => invalid(path, problem) };
    return new Map([...parseCimatrix(bytes, limits)].map(([name, values]) => [name, checked(values, name, path)]));
  }
  if (bytes.toString("latin1", 0, 4) !== "GGUF") return parseBinary(bytes, path);
  const table = await readTensorTable(path).catch((cause) => {
    throw cause instanceof ServerError ? invalid(path, cause.message) : cause;
  });
  return parseGguf(table, bytes, path);
}

async function read(path: string): Promise<Buffer> {
  try {
    const { size } = await stat(path);
    if (size > maxFileBytes) throw invalid(path, `it has ${size} bytes; at most ${maxFileBytes} are read`);
    return await readFile(path);
  } catch (cause) {
    if (cause instanceof ServerError) throw cause;
    throw invalid(path, `it cannot be read (${(cause as NodeJS.ErrnoException).code})`);
  }
}

/** Parses the GGUF format, which has two tensors for each matrix of the model: sums of squares, and counts. */
function parseGguf({ tensors }: TensorTable, bytes: Buffer, path: string): Importance {
  const found = new Map<string, Float32Array>();
  for (const [name, sums] of tensors) {
    if (!name.endsWith(sumsSuffix)) continue;
    const matrix = name.slice(0, -sumsSuffix.length);
    const counts = tensors.get(`${matrix}${countsSuffix}`);
    if (counts === undefined) throw invalid(path, `"${matrix}" has sums but no "${countsSuffix}"`);
    found.set(matrix, means(floats(sums, bytes, path), floats(counts, bytes, path), matrix, path));
  }
  if (found.size === 0) throw invalid(path, `it has no tensor that ends in "${sumsSuffix}"`);
  return found;
}

function floats({ name, type, offset, bytes: length }: TensorInfo, bytes: Buffer, path: string): Float32Array {
  if (type !== f32) throw invalid(path, `"${name}" has type ${type}; expected F32`);
  return new Float32Array(new Uint8Array(bytes.subarray(offset, offset + length)).buffer);
}

function means(sums: Float32Array, counts: Float32Array, matrix: string, path: string): Float32Array {
  const columns = sums.length / counts.length;
  if (!Number.isInteger(columns)) {
    throw invalid(path, `"${matrix}" has ${sums.length} sums for ${counts.length} matrices`);
  }
  return checked(
    sums.map((sum, i) => {
      const count = counts[Math.floor(i / columns)] as number;
      return count > 0 ? sum / count : 1;
    }),
    matrix,
    path,
  );
}

/** Parses the binary format: the number of entries, then for each entry its name, number of calls, number of values, and the sums. */
function parseBinary(bytes: Buffer, path: string): Importance {
  let at = 0;
  const advance = (count: number) => {
    if (count < 0 || at + count > bytes.length) throw invalid(path, `it ends after ${bytes.length} bytes, in an entry`);
    at += count;
    return at - count;
  };
  const int = () => bytes.readInt32LE(advance(4));
  const entries = int();
  if (entries < 1 || entries > maxEntries) {
    throw invalid(path, `it claims ${entries} entries; expected a GGUF file, or 1 to ${maxEntries} entries`);
  }
  const found = new Map<string, Float32Array>();
  for (let entry = 0; entry < entries; entry++) {
    const nameBytes = int();
    if (nameBytes < 1 || nameBytes > maxNameBytes)
      throw invalid(path, `entry ${entry} has a name of ${nameBytes} bytes`);
    const start = advance(nameBytes);
    const name = bytes.toString("utf8", start, start + nameBytes);
    const calls = int();
    const count = int();
    if (count < 1) throw invalid(path, `"${name}" has ${count} values`);
    const from = advance(count * 4);
    const sums = new Float32Array(new Uint8Array(bytes.subarray(from, from + count * 4)).buffer);
    found.set(name, checked(calls > 0 ? sums.map((sum) => sum / calls) : sums, name, path));
  }
  return found;
}

function checked(values: Float32Array, name: string, path: string): Float32Array {
  const wrong = values.find((value) => !(value >= 0 && value < Number.POSITIVE_INFINITY));
  if (wrong === undefined) return values;
  throw invalid(path, `"${name}" has the value ${wrong}; expected numbers of at least 0`);
}

function invalid(path: string, problem: string): ServerError {
  return new ServerError("config_invalid", `the importance matrix ${path}: ${problem}`, { param: "imatrix" });
}
