// Prefix file: the format of one file of the store. A file contains a description of the model, the tokens, the KV, and
// checksums. Called by prefix-folder.ts on the store's own thread, because every call waits for the disk. This module
// does not follow symbolic links, and validates all data that it reads.
import { createHash, type Hash } from "node:crypto";
import { closeSync, constants, fstatSync, futimesSync, openSync, readSync, writeSync } from "node:fs";
import type { PrefixKey } from "./prefix-list.ts";

/** Identifies the model and the KV layout of its engine. Stored KV can be used only with the same model and layout. */
export interface StoreModel {
  /** Fingerprint of the model's files (see fingerprint.ts). */
  readonly fingerprint: string;
  /** Layout of the engine's KV (KvCache.layout). */
  readonly layout: string;
}

export interface PrefixContent extends PrefixKey {
  /** KV in the engine's own format. */
  readonly bytes: Uint8Array;
}

/** Thrown for an invalid file of the store; the message is the reason. */
export class DamagedFile extends Error {}

// File layout, by byte offset:
//   0  magic
//   8  version, bytes of the description, number of tokens, 0      u32 each
//  24  bytes of the KV                                            u64
//  32  description as JSON, tokens as i32
//      sha256 of all above
//      the KV
//      sha256 of all above except the first sha256
// Numbers have the byte order of the machine, like the KV. On a machine with another byte order, the version check
// fails.
const magic = Buffer.from("troupeKV");
const version = 1;
const fixedBytes = 32;
const digestBytes = 32;
const maxDescriptionBytes = 64 * 1024;
/** Maximum bytes of one read, write or hash update. */
const pieceBytes = 2 ** 20;

const readFlags = constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0) | (constants.O_NONBLOCK ?? 0);
const createFlags = constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL | (constants.O_NOFOLLOW ?? 0);
/** File mode: only the owner may read, because prompts are private. */
const ownerOnly = 0o600;

/** Returns the size in bytes of the file that writePrefixFile() would write. */
export function prefixFileBytes(model: StoreModel, content: PrefixContent): number {
  return sizeOf(describe(model, content.adapter).length, content.tokens.length, content.bytes.length);
}

/** Creates a prefix file. Throws if the file exists. */
export function writePrefixFile(path: string, model: StoreModel, content: PrefixContent): void {
  const { tokens, bytes } = content;
  const description = describe(model, content.adapter);
  const fixed = new FixedHead();
  fixed.bytes.set(magic);
  fixed.counts.set([version, description.length, tokens.length]);
  fixed.dataBytes[0] = BigInt(bytes.length);
  const file = openSync(path, createFlags, ownerOnly);
  try {
    const hash = createHash("sha256");
    for (const part of [fixed.bytes, description, bytesOf(tokens)]) writeHashed(file, part, hash);
    writeAll(file, hash.copy().digest());
    writeHashed(file, bytes, hash);
    writeAll(file, hash.digest());
  } finally {
    closeSync(file);
  }
}

function describe({ fingerprint, layout }: StoreModel, adapter: string): Buffer {
  return Buffer.from(JSON.stringify({ fingerprint, layout, adapter }));
}

function adapterIn(description: Buffer): string {
  const { adapter }: { readonly adapter?: unknown } = JSON.parse(description.toString());
  return String(adapter);
}

function sizeOf(descriptionBytes: number, tokenCount: number, dataBytes: number): number {
  return fixedBytes + descriptionBytes + tokenCount * 4 + dataBytes + 2 * digestBytes;
}

export interface PrefixHead extends PrefixKey {
  readonly fileBytes: number;
}

/** Reads and checks a file without its KV. Throws DamagedFile, or the system's error if the file cannot be read. */
export function readPrefixHead(path: string, model: StoreModel): PrefixHead {
  const { adapter, tokens, fileBytes } = withFile(path, (file) => readHead(file, model));
  return { adapter, tokens, fileBytes };
}

/**
 * Reads the tokens and the KV of a file, verifies the checksums, and marks the file as recently
 * used. Throws like readPrefixHead().
 */
export function readPrefixFile(path: string, model: StoreModel): PrefixContent {
  return withFile(path, (file) => {
    const { adapter, tokens, dataBytes, hash } = readHead(file, model);
    const bytes = new Uint8Array(dataBytes);
    readHashed(file, bytes, hash);
    if (!readPart(file, digestBytes).equals(hash.digest())) throw new DamagedFile("its KV has another checksum");
    const now = new Date();
    futimesSync(file, now, now);
    return { adapter, tokens, bytes };
  });
}

/** The fixed-length start of a file, and views of the numbers in it. */
class FixedHead {
  readonly bytes = new Uint8Array(fixedBytes);
  readonly counts = new Uint32Array(this.bytes.buffer, 8, 4);
  readonly dataBytes = new BigUint64Array(this.bytes.buffer, 24, 1);
}

interface OpenHead extends PrefixHead {
  readonly dataBytes: number;
  /** Hash of everything read so far. */
  readonly hash: Hash;
}

function withFile<T>(path: string, use: (file: number) => T): T {
  const file = openSync(path, readFlags);
  try {
    return use(file);
  } finally {
    closeSync(file);
  }
}

function readHead(file: number, model: StoreModel): OpenHead {
  const stat = fstatSync(file);
  if (!stat.isFile()) throw new DamagedFile("it is not a file");
  const fixed = new FixedHead();
  readAll(file, fixed.bytes);
  if (magic.compare(fixed.bytes, 0, magic.length) !== 0)
    throw new DamagedFile("it does not begin like a file of the store");
  const [fileVersion = 0, descriptionBytes = 0, tokenCount = 0] = fixed.counts;
  if (fileVersion !== version) throw new DamagedFile(`it has version ${fileVersion}; ${version} is read`);
  const dataBytes = Number(fixed.dataBytes[0]);
  const expectedBytes = sizeOf(descriptionBytes, tokenCount, dataBytes);
  if (descriptionBytes > maxDescriptionBytes || stat.size !== expectedBytes) {
    throw new DamagedFile(`it has ${stat.size} bytes, and should have ${expectedBytes}`);
  }
  const hash = createHash("sha256").update(fixed.bytes);
  const description = Buffer.alloc(descriptionBytes);
  readHashed(file, description, hash);
  const tokens = new Int32Array(tokenCount);
  readHashed(file, bytesOf(tokens), hash);
  if (!readPart(file, digestBytes).equals(hash.copy().digest())) throw new DamagedFile("its head has another checksum");
  const adapter = adapterIn(description);
  if (!describe(model, adapter).equals(description)) throw new DamagedFile("it is of another model");
  return { adapter, tokens, fileBytes: stat.size, dataBytes, hash };
}

function bytesOf(tokens: Int32Array): Uint8Array {
  return new Uint8Array(tokens.buffer, tokens.byteOffset, tokens.byteLength);
}

function writeHashed(file: number, bytes: Uint8Array, hash: Hash): void {
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const piece = bytes.subarray(at, at + pieceBytes);
    hash.update(piece);
    writeAll(file, piece);
  }
}

function writeAll(file: number, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length; ) done += writeSync(file, bytes, done);
}

function readHashed(file: number, bytes: Uint8Array, hash: Hash): void {
  for (let at = 0; at < bytes.length; at += pieceBytes) {
    const piece = bytes.subarray(at, at + pieceBytes);
    readAll(file, piece);
    hash.update(piece);
  }
}

function readPart(file: number, length: number): Buffer {
  const bytes = Buffer.alloc(length);
  readAll(file, bytes);
  return bytes;
}

function readAll(file: number, bytes: Uint8Array): void {
  for (let done = 0; done < bytes.length; ) {
    const count = readSync(file, bytes, done, bytes.length - done, null);
    if (count === 0) throw new DamagedFile("it ends too early");
    done += count;
  }
}
