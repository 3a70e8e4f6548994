// Owns the GGUF container format: magic, version, key/value pairs and where the tensors lie. engines/gguf/metadata.ts asks
// it for keys and gives them meaning. It reads only the head of the file, never the weights, and believes no length in it.
import { type FileHandle, open } from "node:fs/promises";
import { ServerError } from "../../runtime/errors.ts";

/** A value as the file has it; 64-bit integers become numbers, exact up to 2^53. */
export type GgufValue = number | boolean | string | readonly GgufValue[];

const magic = 0x46554747; // "GGUF", read as a little-endian number
const firstWindowBytes = 8 * 1024 * 1024;
/** The largest vocabularies take some 30 MB; a head that claims more is damaged. */
const maxHeadBytes = 128 * 1024 * 1024;
/** Lists in lists that are read; files in use have none. */
const maxListDepth = 8;

const valueType = {
  u8: 0,
  i8: 1,
  u16: 2,
  i16: 3,
  u32: 4,
  i32: 5,
  f32: 6,
  bool: 7,
  string: 8,
  array: 9,
  u64: 10,
  i64: 11,
  f64: 12,
};

/** The window read so far ends before the head does. */
class WindowTooSmall extends Error {}

/** Reads a file's key/value pairs whose key `wanted` accepts. Throws ServerError `model_file_invalid`. */
export async function readGguf(path: string, wanted: (key: string) => boolean): Promise<Map<string, GgufValue>> {
  const file = await openModelFile(path);
  try {
    const { size } = await file.stat();
    for (let windowBytes = firstWindowBytes; ; windowBytes *= 4) {
      try {
        const { buffer, bytesRead } = await file.read(Buffer.alloc(Math.min(size, windowBytes)), { position: 0 });
        return parseHead(buffer.subarray(0, bytesRead), size, path, wanted);
      } catch (error) {
        if (!(error instanceof WindowTooSmall)) throw error;
        if (windowBytes >= size) throw truncated(path, size);
        if (windowBytes >= maxHeadBytes) throw damaged(path, `the head does not end within ${windowBytes} bytes`);
      }
    }
  } finally {
    await file.close();
  }
}

async function openModelFile(path: string): Promise<FileHandle> {
  try {
    const file = await open(path, "r");
    if ((await file.stat()).isFile()) return file;
    await file.close();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reason = code === "ENOENT" ? "there is no such file" : `it cannot be opened (${code})`;
    throw new ServerError("model_file_invalid", `expected a GGUF model at ${path}, but ${reason}; check the path`, {
      cause: error,
    });
  }
  throw new ServerError(
    "model_file_invalid",
    `expected a GGUF model at ${path}, but it is not a file; name the .gguf file`,
  );
}

function truncated(path: string, size: number): ServerError {
  return new ServerError(
    "model_file_invalid",
    `${path} ends after ${size} bytes, before its own contents do; it is an incomplete copy, fetch it again`,
  );
}

function damaged(path: string, problem: string): ServerError {
  return new ServerError("model_file_invalid", `${path} is damaged: ${problem}; fetch it again`);
}

function parseHead(
  bytes: Buffer,
  fileSize: number,
  path: string,
  wanted: (key: string) => boolean,
): Map<string, GgufValue> {
  const cursor = new Cursor(bytes, path);
  if (bytes.length >= 4 && bytes.readUInt32LE(0) !== magic) {
    const found = JSON.stringify(bytes.toString("latin1", 0, 4));
    throw new ServerError(
      "model_file_invalid",
      `expected a GGUF model at ${path}, which starts with "GGUF", but it starts with ${found}`,
    );
  }
  cursor.u32();
  const version = cursor.u32();
  if (version !== 2 && version !== 3) {
    throw new ServerError(
      "model_file_invalid",
      `${path} is GGUF version ${version}; versions 2 and 3 (little-endian) can be read`,
    );
  }
  const tensorCount = cursor.u64();
  const pairCount = cursor.u64();
  const pairs = new Map<string, GgufValue>();
  for (let i = 0; i < pairCount; i++) {
    const key = cursor.string();
    const type = cursor.u32();
    if (wanted(key)) pairs.set(key, cursor.value(type));
    else cursor.skip(type);
  }
  checkTensorsLieInside(cursor, tensorCount, fileSize, path);
  return pairs;
}

/** Where the tensors start is enough to tell a cut-off file; the engine checks each size when it maps them. */
function checkTensorsLieInside(cursor: Cursor, tensorCount: number, fileSize: number, path: string): void {
  let lastOffset = -1;
  for (let i = 0; i < tensorCount; i++) {
    cursor.string();
    const dimensions = cursor.u32();
    cursor.advance(dimensions * 8 + 4);
    lastOffset = Math.max(lastOffset, cursor.u64());
  }
  if (cursor.offset + lastOffset >= fileSize) throw truncated(path, fileSize);
}

/** Walks the head. Every length is checked against the window before it is used. */
class Cursor {
  offset = 0;
  private readonly bytes: Buffer;
  private readonly path: string;

  constructor(bytes: Buffer, path: string) {
    this.bytes = bytes;
    this.path = path;
  }

  /** Moves on by `count` bytes and returns where they start. */
  advance(count: number): number {
    const start = this.offset;
    if (start + count > this.bytes.length) throw new WindowTooSmall();
    this.offset = start + count;
    return start;
  }

  u32(): number {
    return this.bytes.readUInt32LE(this.advance(4));
  }

  u64(): number {
    return Number(this.bytes.readBigUInt64LE(this.advance(8)));
  }

  /** A byte order mark is kept: vocabularies have tokens that start with one. */
  string(): string {
    const length = this.u64();
    const start = this.advance(length);
    return this.bytes.toString("utf8", start, start + length);
  }

  value(type: number, depth = 0): GgufValue {
    if (type === valueType.string) return this.string();
    if (type === valueType.bool) return this.bytes[this.advance(1)] !== 0;
    if (type === valueType.array) return this.array(depth);
    return this.number(type);
  }

  skip(type: number, depth = 0): void {
    if (type === valueType.string) this.advance(this.u64());
    else if (type === valueType.array) {
      const { elementType, count } = this.listHead(depth);
      if (elementType === valueType.string || elementType === valueType.array) {
        for (let i = 0; i < count; i++) this.skip(elementType, depth + 1);
      } else this.advance(this.width(elementType) * count);
    } else this.advance(this.width(type));
  }

  private array(depth: number): GgufValue[] {
    const { elementType, count } = this.listHead(depth);
    const values: GgufValue[] = [];
    for (let i = 0; i < count; i++) values.push(this.value(elementType, depth + 1));
    return values;
  }

  private listHead(depth: number): { elementType: number; count: number } {
    if (depth >= maxListDepth) throw damaged(this.path, `it has lists inside lists, more than ${maxListDepth} deep`);
    return { elementType: this.u32(), count: this.u64() };
  }

  private number(type: number): number {
    const start = this.advance(this.width(type));
    const { bytes } = this;
    if (type === valueType.u8) return bytes.readUInt8(start);
    if (type === valueType.i8) return bytes.readInt8(start);
    if (type === valueType.u16) return bytes.readUInt16LE(start);
    if (type === valueType.i16) return bytes.readInt16LE(start);
    if (type === valueType.u32) return bytes.readUInt32LE(start);
    if (type === valueType.i32) return bytes.readInt32LE(start);
    if (type === valueType.f32) return bytes.readFloatLE(start);
    if (type === valueType.f64) return bytes.readDoubleLE(start);
    return Number(type === valueType.i64 ? bytes.readBigInt64LE(start) : bytes.readBigUInt64LE(start));
  }

  private width(type: number): number {
    const width = [1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8][type];
    if (width === undefined || width === 0) {
      throw damaged(this.path, `it has a value of unknown GGUF type ${type} at byte ${this.offset}`);
    }
    return width;
  }
}
