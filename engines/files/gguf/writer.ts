// GGUF header writer: encodes the key/value pairs and the tensor table of a file, and places the tensor data. The caller
// writes the header, then each tensor at its position; bytes between tensors are zero.
import { aligned, preamble, tensorEntry } from "./encode.ts";
import { tensorTypes } from "./tensors.ts";
import { numberTypes, type TypedValue } from "./typed-value.ts";

/** Tensor of a file to write. */
export interface HeadTensor {
  readonly name: string;
  /** GGUF type number. */
  readonly type: number;
  /** Dimensions, columns first. */
  readonly shape: readonly number[];
}

export interface GgufHead {
  /** Everything before the tensor data, padded to the alignment. */
  readonly bytes: Buffer;
  /** Byte position of each tensor from the start of the file, in the order given. */
  readonly offsets: readonly number[];
  /** Size of the whole file: the last tensor is padded to the alignment. */
  readonly fileBytes: number;
}

const boolType = 7;
const stringType = 8;
const arrayType = 9;
const firstBytes = 64 * 1024;

/** Encodes a header. The tensors' data lie in the order given, each at a multiple of the alignment. */
export function ggufHead(pairs: ReadonlyMap<string, TypedValue>, tensors: readonly HeadTensor[]): GgufHead {
  let end = 0;
  const relative = tensors.map(({ type, shape }) => {
    const offset = end;
    end = aligned(offset + tensorByteLength(type, shape));
    return offset;
  });
  const sink = new ByteSink();
  sink.bytes(preamble(tensors.length, pairs.size));
  for (const [key, value] of pairs) {
    sink.text(key);
    writeValue(sink, value);
  }
  for (const [i, { name, type, shape }] of tensors.entries()) {
    sink.bytes(tensorEntry({ name, type, shape, offset: relative[i] as number }));
  }
  const dataStart = aligned(sink.length);
  const bytes = Buffer.alloc(dataStart);
  sink.content().copy(bytes);
  return { bytes, offsets: relative.map((offset) => dataStart + offset), fileBytes: dataStart + end };
}

/** Returns the size of a tensor's data. Throws RangeError if its rows are not whole blocks of the type. */
export function tensorByteLength(type: number, shape: readonly number[]): number {
  const found = tensorTypes.get(type);
  const columns = shape[0] ?? 1;
  if (!found || columns % found.blockLength !== 0) {
    throw new RangeError(`rows of ${columns} numbers cannot be stored as ${found?.name ?? `type ${type}`}`);
  }
  return (shape.reduce((product, length) => product * length, 1) / found.blockLength) * found.blockBytes;
}

function writeValue(sink: ByteSink, value: TypedValue): void {
  if (value.exact !== undefined) {
    sink.u32(value.type === "array" ? arrayType : typeNumber(value.type));
    sink.bytes(value.exact);
    return;
  }
  if (value.type !== "array") {
    sink.u32(typeNumber(value.type));
    writeScalar(sink, value.type, value.value);
    return;
  }
  sink.u32(arrayType);
  sink.u32(typeNumber(value.of));
  sink.number("u64", value.value.length);
  for (const element of value.value) writeScalar(sink, value.of, element);
}

type ScalarType = Exclude<TypedValue["type"], "array">;

function typeNumber(type: ScalarType): number {
  if (type === "bool") return boolType;
  return type === "string" ? stringType : numberTypes[type];
}

function writeScalar(sink: ByteSink, type: ScalarType, value: number | boolean | string): void {
  if (typeof value === "string") sink.text(value);
  else if (type === "bool") sink.number("u8", Number(value));
  else if (type !== "string") sink.number(type, Number(value));
}

/** Growing buffer: a vocabulary has hundreds of thousands of values, too many for a buffer each. */
class ByteSink {
  length = 0;
  #buffer = Buffer.alloc(firstBytes);

  content(): Buffer {
    return this.#buffer.subarray(0, this.length);
  }

  bytes(bytes: Uint8Array): void {
    // #advance() comes first, because it may replace the buffer.
    const start = this.#advance(bytes.length);
    this.#buffer.set(bytes, start);
  }

  u32(value: number): void {
    this.number("u32", value);
  }

  /** Writes a string: its length in bytes as u64, then UTF-8. */
  text(value: string): void {
    const bytes = Buffer.byteLength(value);
    this.number("u64", bytes);
    const start = this.#advance(bytes);
    this.#buffer.write(value, start, bytes);
  }

  /** Writes a number. Throws RangeError if the type cannot hold it. */
  number(type: keyof typeof numberTypes, value: number): void {
    const start = this.#advance(numberBytes[type]);
    const buffer = this.#buffer;
    switch (type) {
      case "u8":
        return void buffer.writeUInt8(value, start);
      case "i8":
        return void buffer.writeInt8(value, start);
      case "u16":
        return void buffer.writeUInt16LE(value, start);
      case "i16":
        return void buffer.writeInt16LE(value, start);
      case "u32":
        return void buffer.writeUInt32LE(value, start);
      case "i32":
        return void buffer.writeInt32LE(value, start);
      case "f32":
        return void buffer.writeFloatLE(value, start);
      case "u64":
        return void buffer.writeBigUInt64LE(BigInt(value), start);
      case "i64":
        return void buffer.writeBigInt64LE(BigInt(value), start);
      case "f64":
        return void buffer.writeDoubleLE(value, start);
    }
  }

  #advance(bytes: number): number {
    const start = this.length;
    this.length += bytes;
    if (this.length > this.#buffer.length) {
      const grown = Buffer.alloc(Math.max(this.length, 2 * this.#buffer.length));
      this.#buffer.copy(grown, 0, 0, start);
      this.#buffer = grown;
    }
    return start;
  }
}

const numberBytes: Readonly<Record<keyof typeof numberTypes, number>> = {
  ...{ u8: 1, i8: 1, u16: 2, i16: 2, u32: 4, i32: 4, f32: 4, u64: 8, i64: 8, f64: 8 },
};
