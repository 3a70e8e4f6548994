// Safetensors header: reads type, shape and position of each tensor. The file is not trusted: the header's length has a
// limit. The tensors must fill the rest of the file without gaps, so that any truncation is detected.
import { quote } from "../gguf/invalid-file.ts";

export interface ReadableFile {
  /** Name of the file in errors. */
  readonly name: string;
  readonly size: number;
  /** Fills `into` with the bytes of the file from `position` on. */
  read(into: Uint8Array, position: number): Promise<void>;
}

export interface SafetensorsEntry {
  readonly name: string;
  /** Type name as in the file: F32, F16, BF16 and others. */
  readonly type: string;
  /** Dimensions, the slowest-varying first. */
  readonly shape: readonly number[];
  /** Byte position from the start of the file. */
  readonly offset: number;
  readonly bytes: number;
}

export interface HeadLimits {
  /** Maximum length of the header in bytes. */
  readonly maxBytes: number;
  /** Returns the error for a damaged file. */
  readonly damaged: (problem: string) => Error;
}

/** Bits per value by type name. Files with other types, which later versions of the format may have, are read, too. */
const valueBits: Readonly<Record<string, number>> = {
  ...{ F64: 64, F32: 32, F16: 16, BF16: 16, F8_E4M3: 8, F8_E5M2: 8, F8_E8M0: 8, F4: 4 },
  ...{ I64: 64, I32: 32, I16: 16, I8: 8, U64: 64, U32: 32, U16: 16, U8: 8, BOOL: 8 },
};

const lengthBytes = 8;
const maxDimensions = 8;

/** Returns the tensors in file order. Throws `damaged(problem)`. */
export async function readSafetensorsHead(file: ReadableFile, limits: HeadLimits): Promise<SafetensorsEntry[]> {
  const header = await readHeader(file, limits);
  const dataStart = lengthBytes + header.length;
  const tensors = parseHeader(header, limits).map(([name, value]) => entryOf(name, value, dataStart, limits));
  tensors.sort((one, other) => one.offset - other.offset);
  let end = dataStart;
  for (const { name, offset, bytes } of tensors) {
    if (offset !== end) throw limits.damaged(`its tensor ${quote(name)} begins at byte ${offset}; expected ${end}`);
    end += bytes;
  }
  if (end !== file.size) throw limits.damaged(`its tensors end at byte ${end}, the file at ${file.size}`);
  return tensors;
}

async function readHeader(file: ReadableFile, { maxBytes, damaged }: HeadLimits): Promise<Buffer> {
  const room = file.size - lengthBytes;
  if (room < 2) throw damaged(`it has ${file.size} bytes`);
  const length = Buffer.alloc(lengthBytes);
  await file.read(length, 0);
  const headerBytes = length.readBigUInt64LE();
  const most = Math.min(room, maxBytes);
  if (headerBytes > most) throw damaged(`it claims a head of ${headerBytes} bytes; at most ${most} are possible`);
  const header = Buffer.alloc(Number(headerBytes));
  await file.read(header, lengthBytes);
  return header;
}

function parseHeader(header: Buffer, { damaged }: HeadLimits): [name: string, value: unknown][] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(header));
  } catch {
    throw damaged("its head is not JSON in UTF-8");
  }
  if (!isRecord(parsed)) throw damaged("its head is not a JSON object");
  return Object.entries(parsed).filter(([name]) => name !== "__metadata__");
}

function entryOf(name: string, value: unknown, dataStart: number, { damaged }: HeadLimits): SafetensorsEntry {
  const { dtype, shape, data_offsets: span } = isRecord(value) ? value : {};
  const isWhole = typeof dtype === "string" && isCounts(shape, maxDimensions) && isCounts(span, 2);
  const [from, to] = isWhole ? span : [];
  if (!isWhole || from === undefined || to === undefined || from > to) {
    throw damaged(`its tensor ${quote(name)} lacks a valid type, shape or position`);
  }
  return { name, type: dtype, shape, offset: dataStart + from, bytes: to - from };
}

/** Returns what is wrong with a tensor's size; null if shape, type and size agree, or the type is unknown. */
export function sizeProblem({ name, type, shape, bytes }: SafetensorsEntry): string | null {
  const bits = Object.hasOwn(valueBits, type) ? (valueBits[type] as number) : null;
  const count = shape.reduce((product, length) => product * length, 1);
  if (bits === null || (count * bits) / 8 === bytes) return null;
  return `its tensor ${quote(name)} has ${bytes} bytes; expected ${count} numbers of ${type}`;
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCounts(value: unknown, most: number): value is number[] {
  return (
    Array.isArray(value) && value.length <= most && value.every((count) => Number.isSafeInteger(count) && count >= 0)
  );
}
