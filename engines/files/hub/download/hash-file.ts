// sha256 of a file's content, with progress reports.
import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import type { FetchOptions } from "./fetch-options.ts";
import { cancelled } from "./retry.ts";

/** Returns the sha256 in hex. Throws `cancelled` if the signal fires. */
export async function hashFile(
  path: string,
  totalBytes: number,
  onProgress: FetchOptions["onProgress"],
  signal?: AbortSignal,
): Promise<string> {
  const hash = createHash("sha256");
  const chunkBytes = 2 ** 20;
  let doneBytes = 0;
  for await (const chunk of createReadStream(path, { highWaterMark: chunkBytes }) as AsyncIterable<Buffer>) {
    if (signal?.aborted) throw cancelled();
    hash.update(chunk);
    doneBytes += chunk.length;
    onProgress?.({ phase: "verify", doneBytes, totalBytes });
  }
  return hash.digest("hex");
}
