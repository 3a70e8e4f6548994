// Block formats with blocks of 32 values, for kernel tests: random blocks in file format, and their values by the
// format's definition.

type BlockType = "Q8_0" | "Q4_0" | "Q4_1" | "Q5_0" | "Q5_1" | "IQ4_NL" | "MXFP4";

export interface BlockFormat {
  readonly name: BlockType;
  /** GGUF number of the type. */
  readonly type: number;
  readonly blockBytes: number;
}

export const blockFormats: readonly BlockFormat[] = [
  { name: "Q8_0", type: 8, blockBytes: 34 },
  { name: "Q4_0", type: 2, blockBytes: 18 },
  { name: "Q4_1", type: 3, blockBytes: 20 },
  { name: "Q5_0", type: 6, blockBytes: 22 },
  { name: "Q5_1", type: 7, blockBytes: 24 },
  { name: "IQ4_NL", type: 20, blockBytes: 18 },
  { name: "MXFP4", type: 39, blockBytes: 17 },
];

export interface BlockMatrix {
  readonly rows: number;
  readonly k: number;
  readonly file: Uint8Array;
}

/** Kinds of scales: "any" includes the smallest and largest values; "usual" resembles the scales of real models. */
export type Scales = "any" | "usual";

/** Bits of float16 values: both signs, zeros, subnormal, small, ordinary, the largest. */
const anyHalves = [0x0000, 0x8000, 0x0001, 0x83ff, 0x0400, 0x1234, 0x9abc, 0x2c00, 0xac01, 0x3c00, 0x7bff, 0xfbff];
const anyExponents = [0, 1, 2, 60, 100, 126, 127, 128, 129, 160];
const infinitiesAndNaN = [0x7c00, 0xfc00, 0x7e01, 0xffff];
const noExponent = 255;

const iq4Levels = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];
const fp4Levels = [0, 0.5, 1, 1.5, 2, 3, 4, 6];

export function randomMatrix(
  format: BlockFormat,
  rows: number,
  k: number,
  scales: Scales,
  next: () => number,
): BlockMatrix {
  const file = Uint8Array.from({ length: (rows * k * format.blockBytes) / 32 }, () => Math.floor(next() * 256));
  const matrix = { rows, k, file };
  setScales(format, matrix, scales, next);
  return matrix;
}

export function setScales(format: BlockFormat, { file }: BlockMatrix, scales: Scales, next: () => number): void {
  const data = new DataView(file.buffer);
  const pick = (from: readonly number[]) => from[Math.floor(next() * from.length)] as number;
  const half = () =>
    scales === "any" ? pick(anyHalves) : (next() < 0.5 ? 0x8000 : 0) + 0x2800 + Math.floor(next() * 3000);
  for (let block = 0; block < file.length; block += format.blockBytes) {
    if (format.name === "MXFP4") {
      file[block] = scales === "any" ? pick(anyExponents) : 118 + Math.floor(next() * 6);
      continue;
    }
    data.setUint16(block, half(), true);
    if (hasMinimum(format)) data.setUint16(block + 2, half(), true);
  }
}

/** Sets the scale of a row's last block to infinity or NaN. Sets the block's minimum instead, if it has one and `kind` is even. */
export function spoilScale(format: BlockFormat, { k, file }: BlockMatrix, row: number, kind: number): void {
  const block = (((row + 1) * k) / 32 - 1) * format.blockBytes;
  if (format.name === "MXFP4") {
    file[block] = noExponent;
    return;
  }
  const bits = infinitiesAndNaN[kind % infinitiesAndNaN.length] as number;
  const isMinimum = hasMinimum(format) && kind % 2 === 0;
  new DataView(file.buffer).setUint16(block + (isMinimum ? 2 : 0), bits, true);
}

/** Returns a row's values by the format's definition, with each step rounded to 32-bit floats. */
export function dequantise(format: BlockFormat, { k, file }: BlockMatrix, row: number): Float32Array {
  const data = new DataView(file.buffer);
  return Float32Array.from({ length: k }, (_, c) =>
    valueAt(format, data, ((row * k) / 32 + (c >> 5)) * format.blockBytes, c & 31),
  );
}

/** Returns value number c of the block at address `block`. */
function valueAt(format: BlockFormat, data: DataView, block: number, c: number): number {
  if (format.name === "MXFP4") {
    const number = nibble(data, block + 1, c);
    // Adding 0 turns negative zero into zero.
    const level = (number & 8 ? -1 : 1) * (fp4Levels[number & 7] as number) + 0;
    return level * 2 ** (data.getUint8(block) - 127);
  }
  const scale = halfToNumber(data.getUint16(block, true));
  const minimum = hasMinimum(format) ? halfToNumber(data.getUint16(block + 2, true)) : 0;
  switch (format.name) {
    case "Q8_0":
      return scale * data.getInt8(block + 2 + c);
    case "Q4_0":
      return scale * (nibble(data, block + 2, c) - 8);
    case "Q4_1":
      return Math.fround(scale * nibble(data, block + 4, c)) + minimum;
    case "Q5_0":
      return scale * (nibble(data, block + 6, c) + 16 * bit(data, block + 2, c) - 16);
    case "Q5_1":
      return Math.fround(scale * (nibble(data, block + 8, c) + 16 * bit(data, block + 4, c))) + minimum;
    case "IQ4_NL":
      return scale * (iq4Levels[nibble(data, block + 2, c)] as number);
  }
}

function hasMinimum({ name }: BlockFormat): boolean {
  return name === "Q4_1" || name === "Q5_1";
}

function nibble(data: DataView, at: number, c: number): number {
  const byte = data.getUint8(at + (c & 15));
  return c & 16 ? byte >> 4 : byte & 15;
}

function bit(data: DataView, at: number, c: number): number {
  return (data.getUint32(at, true) >>> c) & 1;
}

function halfToNumber(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
}
