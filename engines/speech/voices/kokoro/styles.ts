// Styles: the vectors of the voices. A voice has one vector for each number of phonemes, row n - 1 for n phonemes. Voices are files of
// 32-bit floats in a folder, or numpy arrays in one archive (.npz).
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { type Entry, openPromise } from "yauzl";
import { ServerError } from "../../../../runtime/errors.ts";

/** Number of floats of a vector. */
export const styleLength = 256;
/** Maximum size of a voice in bytes. Known ones have 510 vectors, 0.5 MB. */
const maxBytes = 8 * 2 ** 20;

export interface Styles {
  /** Names of the voices, sorted. */
  readonly ids: readonly string[];
  /** Returns the vectors of a voice. Throws `model_file_invalid`. */
  read(id: string): Promise<Float32Array>;
  close(): void;
}

/** Opens the voices at a path: a folder of .bin files, or a numpy archive. Throws `model_file_invalid`. */
export async function openStyles(path: string, isFolder: boolean): Promise<Styles> {
  return isFolder ? await openFolder(path) : await openArchive(path);
}

async function openFolder(path: string): Promise<Styles> {
  const names = (await readdir(path)).filter((name) => name.endsWith(".bin")).sort();
  return {
    ids: names.map((name) => name.slice(0, -".bin".length)),
    read: async (id) => vectorsOf(await readFile(join(path, `${id}.bin`)), id),
    close: () => {},
  };
}

async function openArchive(path: string): Promise<Styles> {
  const zip = await openPromise(path, { autoClose: false }).catch((cause: unknown) => {
    throw invalid(`"${path}" is not an archive of numpy: ${String(cause)}`);
  });
  const entries = new Map<string, Entry>();
  try {
    for await (const entry of zip.eachEntry()) {
      if (entry.fileName.endsWith(".npy")) entries.set(entry.fileName.slice(0, -".npy".length), entry);
    }
  } catch (cause) {
    zip.close();
    throw invalid(`"${path}" is a damaged archive: ${String(cause)}`);
  }
  return {
    ids: [...entries.keys()].sort(),
    read: async (id) => {
      const entry = entries.get(id);
      if (entry === undefined || entry.uncompressedSize > maxBytes) throw invalid(`the voice "${id}" is too large`);
      return vectorsOf(arrayOf(await buffer(await zip.openReadStreamPromise(entry)), id), id);
    },
    close: () => zip.close(),
  };
}

/** Returns the bytes of a numpy array of 32-bit floats in row-major order. */
function arrayOf(file: Buffer, id: string): Buffer {
  const isLong = file[6] !== 1;
  const start = isLong ? 12 : 10;
  if (file.toString("latin1", 0, 6) !== "\x93NUMPY" || file.length < start) {
    throw invalid(`the voice "${id}" is not an array of numpy`);
  }
  const end = start + (isLong ? file.readUInt32LE(8) : file.readUInt16LE(8));
  const head = file.toString("latin1", start, end);
  if (!/'descr': '<f4'/.test(head) || !/'fortran_order': False/.test(head)) {
    throw invalid(`the voice "${id}" expects 32-bit floats in the order of rows; got ${head.trim().slice(0, 200)}`);
  }
  return file.subarray(end);
}

function vectorsOf(bytes: Buffer, id: string): Float32Array {
  if (bytes.length === 0 || bytes.length > maxBytes || bytes.length % (4 * styleLength) !== 0) {
    throw invalid(`the voice "${id}" expects vectors of ${styleLength} 32-bit floats; got ${bytes.length} bytes`);
  }
  return new Float32Array(new Uint8Array(bytes).buffer);
}

function invalid(message: string): ServerError {
  return new ServerError("model_file_invalid", message, { param: "model_id" });
}
