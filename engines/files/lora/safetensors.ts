// Safetensors head: reads type, shape and position of each tensor. The file is not trusted: the head's length has a
// limit. The tensors must fill the rest of the file without gaps, so that any truncation is detected.
import type { ServerError } from "../../../runtime/errors.ts";
import { quote } from "../gguf/invalid-file.ts";
import { invalidAdapter } from "./adapter-problems.ts";
import { type FloatSpan, type FloatType, floatBytes } from "./lora-pair.ts";
import type { SourceFile } from "./source-file.ts";

export type ReadableFile = Pick<SourceFile, "name" | "size" | "read">;

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

const lengthBytes = 8;
/**
 * Maximum length of the head: enough for about 40,000 tensors of an adapter, and far below the lengths that a damaged
 * file may claim.
 */
const maxHeaderBytes = 8 * 1024 * 1024;
const maxDimensions = 8;

/** Returns the tensors in file order. Throws `invalid_lora_adapter`. */
export async function readSafetensors(file: ReadableFile): Promise<SafetensorsEntry[]> {
  const damaged: Damaged = (problem) =>
    invalidAdapter(`its ${file.name} is damaged or cut off: ${problem}; copy it again`);
  const header = await readHeader(file, damaged);
  const dataStart = lengthBytes + header.length;
  const tensors = parseHeader(header, damaged).map(([name, value]) => entryOf(name, value, { dataStart, damaged }));
  tensors.sort((one, other) => one.offset - other.offset);
  let end = dataStart;
  for (const { name, offset, bytes } of tensors) {
    if (offset !== end) throw damaged(`its tensor ${quote(name)} begins at byte ${offset}; expected ${end}`);
    end += bytes;
  }
  if (end !== file.size) throw damaged(`its tensors end at byte ${end}, the file at ${file.size}`);
  return tensors;
}

/** Returns the location of a tensor's values. Throws `invalid_lora_adapter` if they are not floats. */
export function floatSpan({ name, type, shape, offset, bytes }: SafetensorsEntry, file: SourceFile): FloatSpan {
  if (!isFloatType(type)) {
    throw invalidAdapter(`its tensor ${quote(name)} has type ${quote(type)}; expected F32, F16 or BF16`);
  }
  const count = shape.reduce((product, length) => product * length, 1);
  if (count * floatBytes[type] !== bytes) {
    throw invalidAdapter(`its tensor ${quote(name)} has ${bytes} bytes; expected ${count} numbers of ${type}`);
  }
  return { file, name: quote(name), type, offset, count };
}

function isFloatType(type: string): type is FloatType {
  return Object.hasOwn(floatBytes, type);
}

type Damaged = (problem: string) => ServerError;

async function readHeader(file: ReadableFile, damaged: Damaged): Promise<Buffer> {
  const room = file.size - lengthBytes;
  if (room < 2) throw damaged(`it has ${file.size} bytes`);
  const length = Buffer.alloc(lengthBytes);
  await file.read(length, 0);
  const headerBytes = length.readBigUInt64LE();
  if (headerBytes > Math.min(room, maxHeaderBytes)) {
    throw damaged(`it claims a head of ${headerBytes} bytes; at most ${Math.min(room, maxHeaderBytes)} are possible`);
  }
  const header = Buffer.alloc(Number(headerBytes));
  await file.read(header, lengthBytes);
  return header;
}

function parseHeader(header: Buffer, damaged: Damaged): [name: string, value: unknown][] {
  let parsed: unknown;
  try {
    parsed = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(header));
  } catch {
    throw damaged("its head is not JSON in UTF-8");
  }
  if (!isRecord(parsed)) throw damaged("its head is not a JSON object");
  return Object.entries(parsed).filter(([name]) => name !== "__metadata__");
}

interface Surroundings {
  readonly dataStart: number;
  readonly damaged: Damaged;
}

function entryOf(name: string, value: unknown, { dataStart, damaged }: Surroundings): SafetensorsEntry {
  const { dtype, shape, data_offsets: span } = isRecord(value) ? value : {};
  const isWhole = typeof dtype === "string" && isCounts(shape, maxDimensions) && isCounts(span, 2);
  const [from, to] = isWhole ? span : [];
  if (!isWhole || from === undefined || to === undefined || from > to) {
    throw damaged(`its tensor ${quote(name)} lacks a valid type, shape or position`);
  }
  return { name, type: dtype, shape, offset: dataStart + from, bytes: to - from };
}

function isRecord(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCounts(value: unknown, most: number): value is number[] {
  return (
    Array.isArray(value) && value.length <= most && value.every((count) => Number.isSafeInteger(count) && count >= 0)
  );
}
