// Stored values: decodes the number types of safetensors to F32.
import { type StoredType, storedBytes } from "../../files/checkpoint/row-source.ts";
import { halfValues } from "../../files/lora/half-floats.ts";

/** Decodes `count` numbers from the start of `bytes` into `out` from `at` on. */
export type Decoder = (bytes: DataView, count: number, out: Float32Array, at: number) => void;

/** Returns the decoder of a type. */
export function decoderOf(type: StoredType): Decoder {
  return decoders[type];
}

const decoders: Readonly<Record<StoredType, Decoder>> = {
  F64: each("F64", (bytes, at) => bytes.getFloat64(at, true)),
  F32: decodeF32,
  F16: decodeF16,
  BF16: decodeBf16,
  F8_E4M3: decodeBytes(() => eightBitFloats(4, 7)),
  F8_E5M2: decodeBytes(() => eightBitFloats(5, 15)),
  I8: each("I8", (bytes, at) => bytes.getInt8(at)),
  U8: each("U8", (bytes, at) => bytes.getUint8(at)),
  I16: each("I16", (bytes, at) => bytes.getInt16(at, true)),
  U16: each("U16", (bytes, at) => bytes.getUint16(at, true)),
  I32: each("I32", (bytes, at) => bytes.getInt32(at, true)),
  U32: each("U32", (bytes, at) => bytes.getUint32(at, true)),
  I64: each("I64", (bytes, at) => Number(bytes.getBigInt64(at, true))),
  U64: each("U64", (bytes, at) => Number(bytes.getBigUint64(at, true))),
  BOOL: each("BOOL", (bytes, at) => bytes.getUint8(at)),
};

function each(type: StoredType, value: (bytes: DataView, at: number) => number): Decoder {
  const size = storedBytes[type];
  return (bytes, count, out, at) => {
    for (let i = 0; i < count; i++) out[at + i] = value(bytes, i * size);
  };
}

function decodeF32(bytes: DataView, count: number, out: Float32Array, at: number): void {
  const target = new Uint8Array(out.buffer, out.byteOffset + 4 * at, 4 * count);
  target.set(new Uint8Array(bytes.buffer, bytes.byteOffset, 4 * count));
}

function decodeF16(bytes: DataView, count: number, out: Float32Array, at: number): void {
  const halves = halfValues();
  const bits = new Uint16Array(bytes.buffer, bytes.byteOffset, count);
  for (let i = 0; i < count; i++) out[at + i] = halves[bits[i] as number] as number;
}

function decodeBf16(bytes: DataView, count: number, out: Float32Array, at: number): void {
  const upper = new Uint16Array(bytes.buffer, bytes.byteOffset, count);
  const bits = new Uint32Array(out.buffer, out.byteOffset + 4 * at, count);
  for (let i = 0; i < count; i++) bits[i] = (upper[i] as number) << 16;
}

function decodeBytes(makeTable: () => Float32Array): Decoder {
  let table: Float32Array | null = null;
  return (bytes, count, out, at) => {
    table ??= makeTable();
    for (let i = 0; i < count; i++) out[at + i] = table[bytes.getUint8(i)] as number;
  };
}

/**
 * Returns the values of all 256 codes of an 8-bit float type. With 4 exponent bits (E4M3), the type has no infinity, and only the codes of
 * the largest magnitude are NaN. With 5 exponent bits (E5M2), it has infinities and NaNs like F16.
 */
function eightBitFloats(exponentBits: number, bias: number): Float32Array {
  const fractionBits = 7 - exponentBits;
  const largest = 2 ** exponentBits - 1;
  return Float32Array.from({ length: 256 }, (_, bits) => {
    const sign = bits & 0x80 ? -1 : 1;
    const exponent = (bits >>> fractionBits) & largest;
    const fraction = (bits & (2 ** fractionBits - 1)) / 2 ** fractionBits;
    if (exponentBits === 4 && (bits & 0x7f) === 0x7f) return Number.NaN;
    if (exponentBits === 5 && exponent === largest)
      return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
    return sign * (exponent === 0 ? fraction * 2 ** (1 - bias) : (1 + fraction) * 2 ** (exponent - bias));
  });
}
