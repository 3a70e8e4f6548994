// Safetensors header writer: encodes the header of a file and places its tensors. Small tensors whose bytes are known are written right
// after the header or at the end of the file; the caller writes the other tensors at their positions. Numbers are aligned to their size.

/** Tensor of a file to write. */
export interface HeadEntry {
  readonly name: string;
  /** Type name of the format: F32, U8. */
  readonly type: string;
  /** Dimensions, the slowest-varying first. */
  readonly shape: readonly number[];
  readonly bytes: number;
}

/** Tensor whose bytes are known. */
export interface SmallTensor extends Omit<HeadEntry, "bytes"> {
  readonly content: Buffer;
}

export interface SafetensorsHead {
  /** The header and the small tensors after it. */
  readonly bytes: Buffer;
  /** Byte position of each tensor from the start of the file, in the order given. */
  readonly offsets: readonly number[];
  readonly fileBytes: number;
  /** The small tensors at the end of the file. */
  readonly tail: Buffer;
}

const lengthBytes = 8;
/** Bytes per number of the types that need an alignment. */
const numberBytes: Readonly<Record<string, number>> = { F32: 4, U32: 4, F16: 2, BF16: 2 };

export function safetensorsHead(
  entries: readonly HeadEntry[],
  small: readonly SmallTensor[],
  metadata: Readonly<Record<string, string>>,
): SafetensorsHead {
  const words = small.filter(({ type }) => type === "U32");
  const others = small.filter(({ type }) => type !== "U32");
  const spans = new Map<
    string,
    { readonly type: string; readonly shape: readonly number[]; readonly start: number; readonly end: number }
  >();
  let end = 0;
  const place = ({ name, type, shape }: Omit<HeadEntry, "bytes">, bytes: number) => {
    spans.set(name, { type, shape, start: end, end: end + bytes });
    end += bytes;
  };
  for (const tensor of words) place(tensor, tensor.content.length);
  const bySize = entries.toSorted((one, other) => alignmentOf(other) - alignmentOf(one));
  for (const entry of bySize) place(entry, entry.bytes);
  for (const tensor of others) place(tensor, tensor.content.length);
  const described = [...spans].map(([name, { type, shape, start, end: last }]) => {
    return [name, { dtype: type, shape, data_offsets: [start, last] }] as const;
  });
  const json = JSON.stringify({ __metadata__: metadata, ...Object.fromEntries(described) });
  const padded = Buffer.from(json + " ".repeat((lengthBytes - (Buffer.byteLength(json) % lengthBytes)) % lengthBytes));
  const length = Buffer.alloc(lengthBytes);
  length.writeBigUInt64LE(BigInt(padded.length));
  const dataStart = lengthBytes + padded.length;
  return {
    bytes: Buffer.concat([length, padded, ...words.map(({ content }) => content)]),
    offsets: entries.map(({ name }) => dataStart + (spans.get(name)?.start ?? 0)),
    fileBytes: dataStart + end,
    tail: Buffer.concat(others.map(({ content }) => content)),
  };
}

function alignmentOf({ type }: HeadEntry): number {
  return numberBytes[type] ?? 1;
}

export function bytesTensor(name: string, value: number): SmallTensor {
  return { name, type: "U8", shape: [], content: Buffer.of(value) };
}

/** Returns a tensor of integers. A number that is not in a list becomes a scalar. */
export function wordsTensor(name: string, value: number | readonly number[]): SmallTensor {
  const values = typeof value === "number" ? [value] : value;
  const content = Buffer.alloc(4 * values.length);
  for (const [i, one] of values.entries()) content.writeUInt32LE(one, 4 * i);
  return { name, type: "U32", shape: typeof value === "number" ? [] : [values.length], content };
}
