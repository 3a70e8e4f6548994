// Cursor over the bytes of a GGUF header (everything before the weights): reads numbers, strings and lists. Used by
// reader.ts and excerpt.ts. File contents are not trusted: every length is checked against the file size before use,
// and memory use has a fixed limit.
import { ServerError } from "../../../runtime/errors.ts";
import { damagedFile, truncatedFile } from "./invalid-file.ts";

/** A metadata value. 64-bit integers become JS numbers, which are exact up to 2^53. */
export type GgufValue = number | boolean | string | readonly GgufValue[];

/**
 * Maximum size of a GGUF header in bytes. The largest vocabularies take about 30 MB. A file with a larger header is
 * rejected as damaged.
 */
export const maxHeadBytes = 128 * 1024 * 1024;
/** Maximum total number of list elements kept in memory. The largest vocabularies have about 1.5 million. */
const maxListValues = 4 * 1024 * 1024;
/** Maximum nesting depth of lists; real files have no nested lists. */
const maxListDepth = 8;

const stringType = 8;
const arrayType = 9;
const boolType = 7;
/** Minimum size of a value in bytes, by type number: u8 i8 u16 i16 u32 i32 f32 bool string array u64 i64 f64. */
const leastBytes: readonly (number | undefined)[] = [1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8];

/** Thrown if the header is longer than the bytes read so far. The file has more bytes, so the caller reads more of it. */
export class WindowTooSmall extends Error {}

/** Cursor over the first bytes of a file. The whole file has `fileBytes` bytes. */
export class Cursor {
  offset = 0;
  readonly path: string;
  readonly fileBytes: number;
  readonly #bytes: Buffer;
  #listValues = 0;

  constructor(bytes: Buffer, fileBytes: number, path: string) {
    this.#bytes = bytes;
    this.fileBytes = fileBytes;
    this.path = path;
  }

  /** Advances by `count` bytes and returns the offset of the first. */
  advance(count: number): number {
    const start = this.offset;
    const end = start + count;
    if (end > this.#bytes.length) {
      if (end > maxHeadBytes) {
        throw damagedFile(this.path, `its head does not end within ${maxHeadBytes} bytes, the most that is read`);
      }
      if (end > this.fileBytes) throw truncatedFile(this.path, this.fileBytes);
      throw new WindowTooSmall();
    }
    this.offset = end;
    return start;
  }

  /** Returns the bytes from `start` to the current offset. */
  slice(start: number): Buffer {
    return this.#bytes.subarray(start, this.offset);
  }

  u32(): number {
    return this.#bytes.readUInt32LE(this.advance(4));
  }

  u64(): number {
    const start = this.advance(8);
    return this.#bytes.readUInt32LE(start + 4) * 2 ** 32 + this.#bytes.readUInt32LE(start);
  }

  /** Reads a string. A byte order mark is kept, because vocabularies have tokens that start with one. */
  string(): string {
    const length = this.u64();
    const start = this.advance(length);
    return this.#bytes.toString("utf8", start, start + length);
  }

  /**
   * Reads the number of items that follow. Each item has at least `least` bytes. Throws if the rest of the file is too
   * short for this number of items.
   */
  count(least: number, things: string): number {
    const count = this.u64();
    if (count * least <= this.fileBytes - this.offset) return count;
    throw new ServerError(
      "model_file_invalid",
      `${this.path} claims ${count} ${things} behind byte ${this.offset}, but it ends after ${this.fileBytes} bytes; ` +
        "it is an incomplete copy or damaged, fetch it again",
    );
  }

  value(type: number, depth = 0): GgufValue {
    if (type === stringType) return this.string();
    if (type === boolType) return this.#bytes[this.advance(1)] !== 0;
    if (type === arrayType) return this.#list(depth);
    return this.#number(type);
  }

  skip(type: number, depth = 0): void {
    if (type === stringType) this.advance(this.u64());
    else if (type === arrayType) {
      const { elementType, count } = this.#listHead(depth);
      if (elementType === stringType || elementType === arrayType) {
        for (let i = 0; i < count; i++) this.skip(elementType, depth + 1);
      } else this.advance(this.#leastBytes(elementType) * count);
    } else this.advance(this.#leastBytes(type));
  }

  #list(depth: number): GgufValue[] {
    const { elementType, count } = this.#listHead(depth);
    this.#listValues += count;
    if (this.#listValues > maxListValues) {
      throw damagedFile(this.path, `its lists have more than ${maxListValues} values, the most that is read`);
    }
    const values: GgufValue[] = [];
    for (let i = 0; i < count; i++) values.push(this.value(elementType, depth + 1));
    return values;
  }

  #listHead(depth: number): { elementType: number; count: number } {
    if (depth >= maxListDepth) {
      throw damagedFile(this.path, `its lists are nested more than ${maxListDepth} deep`);
    }
    const elementType = this.u32();
    return { elementType, count: this.count(this.#leastBytes(elementType), "list values") };
  }

  #number(type: number): number {
    const start = this.advance(this.#leastBytes(type));
    const bytes = this.#bytes;
    switch (type) {
      case 0:
        return bytes.readUInt8(start);
      case 1:
        return bytes.readInt8(start);
      case 2:
        return bytes.readUInt16LE(start);
      case 3:
        return bytes.readInt16LE(start);
      case 4:
        return bytes.readUInt32LE(start);
      case 5:
        return bytes.readInt32LE(start);
      case 6:
        return bytes.readFloatLE(start);
      case 10:
        return Number(bytes.readBigUInt64LE(start));
      case 11:
        return Number(bytes.readBigInt64LE(start));
      default:
        return bytes.readDoubleLE(start);
    }
  }

  #leastBytes(type: number): number {
    const bytes = leastBytes[type];
    if (bytes !== undefined) return bytes;
    throw damagedFile(this.path, `it has a value of unknown GGUF type ${type} at byte ${this.offset}`);
  }
}
