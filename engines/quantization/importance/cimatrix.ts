// .cimatrix: the importance matrix of mistral.rs. Little-endian: the number of entries (u64), then for each the length of its name
// (u64), the name, the number of values (u64) and the values (F32). Names are those of modules, such as
// model.layers.0.self_attn.q_proj; module-names.ts maps them to tensors.

/** Whether a path has the ending of the format. */
export function isCimatrix(path: string): boolean {
  return /\.cimatrix$/i.test(path);
}

export interface CimatrixLimits {
  readonly maxEntries: number;
  readonly maxNameBytes: number;
  /** Returns the error for a file that is not in the format. */
  readonly invalid: (problem: string) => Error;
}

const countBytes = 8;

/** Returns the values by the name of the module. Throws `invalid(problem)`. */
export function parseCimatrix(
  bytes: Buffer,
  { maxEntries, maxNameBytes, invalid }: CimatrixLimits,
): Map<string, Float32Array> {
  let at = 0;
  const advance = (count: number) => {
    if (at + count > bytes.length) throw invalid(`it ends after ${bytes.length} bytes, in an entry`);
    at += count;
    return at - count;
  };
  const count = (what: string, most: number) => {
    const value = bytes.readBigUInt64LE(advance(countBytes));
    if (value < 1n || value > BigInt(most)) throw invalid(`${what} is ${value}; expected 1 to ${most}`);
    return Number(value);
  };
  const found = new Map<string, Float32Array>();
  const entries = count("its number of entries", maxEntries);
  for (let entry = 0; entry < entries; entry++) {
    const nameBytes = count(`the length of name ${entry}`, maxNameBytes);
    const start = advance(nameBytes);
    const name = bytes.toString("utf8", start, start + nameBytes);
    if (found.has(name)) throw invalid(`it has "${name}" twice`);
    const values = count(`the number of values of "${name}"`, bytes.length);
    const from = advance(4 * values);
    found.set(name, new Float32Array(new Uint8Array(bytes.subarray(from, from + 4 * values)).buffer));
  }
  if (at !== bytes.length) throw invalid(`${bytes.length - at} bytes follow its last entry`);
  return found;
}

/** Returns the content of a .cimatrix file. */
export function cimatrixBytes(modules: ReadonlyMap<string, Float32Array>): Buffer {
  const parts = [...modules].flatMap(([name, values]) => {
    const text = Buffer.from(name);
    return [
      u64(text.length),
      text,
      u64(values.length),
      Buffer.from(values.buffer, values.byteOffset, values.byteLength),
    ];
  });
  return Buffer.concat([u64(modules.size), ...parts]);
}

function u64(value: number): Buffer {
  const bytes = Buffer.alloc(countBytes);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}
