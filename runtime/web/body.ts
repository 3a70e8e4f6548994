// Body of a response: read within the limits of size and speed, and decompressed. Decompression stops at the size limit, so a
// decompression bomb does no harm.
import type { IncomingMessage } from "node:http";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import { type FetchLimits, refused, slowStartMs } from "./limits.ts";

/** Value of accept-encoding for bodies that this module decompresses. */
export const acceptedEncodings = "gzip, br";

const speedCheckMs = 500;

const decoders = {
  gzip: createGunzip,
  "x-gzip": createGunzip,
  deflate: createInflate,
  br: createBrotliDecompress,
} as const;

type BodyLimits = Pick<FetchLimits, "sentBytes" | "bodyBytes" | "minBytesPerSecond">;

/** Reads a whole body. Rejects with invalid_value above a limit, or with the error of the connection or decoder. */
export async function readBody(
  response: IncomingMessage,
  limits: BodyLimits,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const announced = Number(response.headers["content-length"] ?? 0);
  if (announced > limits.sentBytes) throw tooLarge(limits.sentBytes, `${announced}`);
  const sent = sizeLimit(limits.sentBytes);
  const body: Buffer[] = [];
  const collected = async (source: AsyncIterable<Buffer>): Promise<void> => {
    for await (const chunk of source) body.push(chunk);
  };
  const stopWatching = watchSpeed(response, sent, limits.minBytesPerSecond);
  try {
    const decoder = decoderOf(response);
    const kept = sizeLimit(limits.bodyBytes);
    if (decoder === null) await pipeline(response, sent.pass, kept.pass, collected, { signal });
    else await pipeline(response, sent.pass, decoder, kept.pass, collected, { signal });
  } finally {
    stopWatching();
  }
  return new Uint8Array(Buffer.concat(body));
}

function decoderOf({ headers }: IncomingMessage) {
  const encoding = (headers["content-encoding"] ?? "identity").trim().toLowerCase();
  if (encoding === "identity" || encoding === "") return null;
  if (!Object.hasOwn(decoders, encoding)) {
    throw refused(`expected the content encoding gzip, deflate or br; got "${encoding.slice(0, 40)}"`);
  }
  return decoders[encoding as keyof typeof decoders]();
}

interface SizeLimit {
  size: number;
  pass(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer>;
}

function sizeLimit(maxBytes: number): SizeLimit {
  const limit: SizeLimit = {
    size: 0,
    async *pass(source) {
      for await (const chunk of source) {
        limit.size += chunk.length;
        if (limit.size > maxBytes) throw tooLarge(maxBytes, "more");
        yield chunk;
      }
    },
  };
  return limit;
}

/** Measures the speed of a response, and aborts it if it is too slow. Returns a function that stops the measurement. */
function watchSpeed(response: IncomingMessage, sent: SizeLimit, minBytesPerSecond: number): () => void {
  const startMs = performance.now();
  const timer = setInterval(() => {
    const measuredMs = performance.now() - startMs - slowStartMs;
    if (measuredMs <= 0 || sent.size >= (minBytesPerSecond * measuredMs) / 1000) return;
    response.destroy(refused(`expected at least ${minBytesPerSecond} bytes a second; the server sends slower`));
  }, speedCheckMs);
  return () => clearInterval(timer);
}

function tooLarge(maxBytes: number, got: string): Error {
  return refused(`expected at most ${maxBytes} bytes, got ${got}`);
}
