// Part transfer: downloads the missing bytes of one file into its partial file. It fetches several byte ranges at a
// time, or one stream if the server ignores ranges. Every response is checked against the hub's description of the
// file. Called by blob-download.ts.
import { ServerError } from "../../../../runtime/errors.ts";
import { etagOf, type RemoteFile } from "../api/hub-api.ts";
import type { HubContext } from "../api/hub-context.ts";
import { explainRefusal } from "../api/hub-refusal.ts";
import { type HubAnswer, sendRequest } from "../api/hub-request.ts";
import type { Part, PartialFile } from "./partial-file.ts";
import { anySignal, TemporaryFailure, withRetries } from "./retry.ts";

interface Transfer {
  readonly context: HubContext;
  readonly file: RemoteFile;
  readonly partial: PartialFile;
  readonly onBytes: () => void;
}

/** Thrown if the response to a range request is the whole file. */
class RangesIgnored extends Error {}

/** Fetches the missing parts. Parts fetched before a failure are kept. */
export async function transferParts(transfer: Transfer): Promise<void> {
  const missing = transfer.partial.parts.filter((part) => !isDone(part));
  const { connections } = transfer.context.limits;
  try {
    await inParallel(Math.min(connections, missing.length), async (stop) => {
      const context = { ...transfer.context, signal: anySignal(stop, transfer.context.signal) };
      for (let part = missing.shift(); part !== undefined; part = missing.shift()) {
        await transferPart({ ...transfer, context }, part);
      }
    });
  } catch (error) {
    if (!(error instanceof RangesIgnored)) throw error;
    await transferWhole(transfer);
  }
}

async function transferPart(transfer: Transfer, part: Part): Promise<void> {
  await retryWhileMoving(transfer, [part], async () => {
    const range = `bytes=${part.start + part.doneBytes}-${part.end - 1}`;
    const answer = await request(transfer, { range });
    if (answer.status === 200) {
      await answer.discard();
      throw new RangesIgnored();
    }
    await checkRange(answer, part, transfer.file);
    for await (const chunk of answer.body) {
      const left = part.end - part.start - part.doneBytes;
      if (chunk.length > left)
        throw new TemporaryFailure(`the answer for range "${range}" of "${pathOf(transfer)}" is too long`);
      await transfer.partial.write(part, chunk);
      transfer.onBytes();
    }
    if (!isDone(part)) throw new TemporaryFailure(`the body of "${pathOf(transfer)}" ended too early`);
  });
}

/** Downloads the file from its start and writes only the missing bytes. */
async function transferWhole(transfer: Transfer): Promise<void> {
  const { parts } = transfer.partial;
  const { sizeBytes } = transfer.file;
  await retryWhileMoving(transfer, parts, async () => {
    const answer = await request(transfer, {});
    const length = answer.headers.get("content-length");
    if (length !== null && Number(length) !== sizeBytes) {
      await answer.discard();
      throw wrongSize(transfer.file, length);
    }
    let position = 0;
    for await (const chunk of answer.body) {
      const end = position + chunk.length;
      if (end > sizeBytes) throw wrongSize(transfer.file, "more");
      for (const part of parts) {
        const from = Math.max(position, part.start + part.doneBytes);
        const to = Math.min(end, part.end);
        if (from < to) await transfer.partial.write(part, chunk.subarray(from - position, to - position));
      }
      position = end;
      transfer.onBytes();
    }
    if (!parts.every(isDone)) throw new TemporaryFailure(`the body of "${pathOf(transfer)}" ended too early`);
  });
}

async function retryWhileMoving(transfer: Transfer, parts: readonly Part[], attempt: () => Promise<void>) {
  const { context } = transfer;
  const done = () => parts.reduce((sum, { doneBytes }) => sum + doneBytes, 0);
  let before = done();
  await withRetries(context, attempt, () => {
    const moved = done() - before;
    before += moved;
    return moved >= context.limits.progressBytes;
  });
}

async function request({ context, file }: Transfer, headers: Readonly<Record<string, string>>): Promise<HubAnswer> {
  const answer = await sendRequest(context, file.address, { headers });
  if (answer.status === 416) {
    await answer.discard();
    throw wrongSize(file, "fewer");
  }
  if (answer.status >= 400) throw await explainRefusal(context, answer, file.source, file.path);
  // Without X-Linked-Etag, the ETag of a redirect may describe the redirect instead of the file.
  const isOfFile = answer.hubHeaders === answer.headers || answer.hubHeaders.has("x-linked-etag");
  const etag = isOfFile ? etagOf(answer.hubHeaders) : null;
  if (etag === null || etag === file.etag) return answer;
  await answer.discard();
  throw new ServerError("model_source_unreachable", `"${file.path}" changed while it was fetched; start again`, {
    param: "model_id",
  });
}

async function checkRange(answer: HubAnswer, part: Part, file: RemoteFile): Promise<void> {
  const [, first, last, size] = /^bytes (\d+)-(\d+)\/(\d+|\*)$/.exec(answer.headers.get("content-range") ?? "") ?? [];
  if (size !== undefined && size !== "*" && Number(size) !== file.sizeBytes) {
    await answer.discard();
    throw wrongSize(file, size);
  }
  if (Number(first) === part.start + part.doneBytes && Number(last) === part.end - 1) return;
  await answer.discard();
  throw new TemporaryFailure(`the server sent another range of "${file.path}" than requested`);
}

function wrongSize(file: RemoteFile, came: string): ServerError {
  const message = `the hub says "${file.path}" has ${file.sizeBytes} bytes and then sends ${came}; try again later`;
  return new ServerError("model_source_unreachable", message, { param: "model_id" });
}

/**
 * Runs `count` workers in parallel. The first failure stops the other workers, and is thrown after all have stopped.
 */
async function inParallel(count: number, work: (signal: AbortSignal) => Promise<void>): Promise<void> {
  const stop = new AbortController();
  let failure: unknown = null;
  const run = async () => {
    try {
      await work(stop.signal);
    } catch (error) {
      failure ??= error;
      stop.abort();
    }
  };
  await Promise.all(Array.from({ length: count }, run));
  if (failure !== null) throw failure;
}

function isDone(part: Part): boolean {
  return part.doneBytes === part.end - part.start;
}

function pathOf({ file }: Transfer): string {
  return file.path;
}
