// Hub API: lists the files of a repository, describes a file, and finds the owner of a token. Responses are validated
// here, because names in them become paths. Called by hub-model.ts and cli/commands/login.ts.
import { z } from "zod";
import { ServerError } from "../../../../runtime/errors.ts";
import { withRetries } from "../download/retry.ts";
import type { HubSource } from "../hub-source.ts";
import type { HubContext } from "./hub-context.ts";
import { explainRefusal } from "./hub-refusal.ts";
import { type HubAnswer, readJson, sendRequest } from "./hub-request.ts";

export interface RepoListing {
  /** Commit that the revision currently points to. */
  readonly commit: string;
  /** File sizes in bytes by path; a size is null if the hub does not report it. */
  readonly files: ReadonlyMap<string, number | null>;
}

/** A file of a repository at a given commit. */
export interface RemoteFile {
  readonly source: HubSource;
  readonly path: string;
  readonly address: string;
  /** Identifies the content of the file, and names its blob in the cache. */
  readonly etag: string;
  readonly sizeBytes: number;
  /** sha256 of the content in hex; null if the etag is not a sha256. */
  readonly sha256: string | null;
}

const listingType = z.object({
  sha: z.string().regex(/^[\w-]{1,64}$/),
  siblings: z.array(z.object({ rfilename: z.string(), size: z.number().nullish() })),
});

/**
 * Lists the files of a repository. Throws `model_file_invalid` if the repository or revision does not exist,
 * `model_source_unreachable` if access is denied.
 */
export async function listRepo(context: HubContext, source: HubSource): Promise<RepoListing> {
  const revision = encodeURIComponent(source.revision);
  const address = `${context.endpoint}/api/models/${source.repo}/revision/${revision}?blobs=true`;
  return await withRetries(context, async () => {
    const answer = await sendRequest(context, address);
    if (answer.status !== 200) throw await explainRefusal(context, answer, source);
    const parsed = listingType.safeParse(await readJson(answer));
    if (!parsed.success) throw unusable(context, `its list of the files of "${source.repo}" cannot be read`);
    const { sha: commit, siblings } = parsed.data;
    const safe = siblings.filter(({ rfilename }) => isSafePath(rfilename));
    return { commit, files: new Map(safe.map(({ rfilename, size }) => [rfilename, size ?? null])) };
  });
}

/** Requests the commit, etag and size of one file from the hub. `listedBytes` is its size in the repository's listing. */
export async function describeFile(
  context: HubContext,
  source: HubSource,
  commit: string,
  path: string,
  listedBytes: number | null,
): Promise<RemoteFile> {
  const encodedPath = path.split("/").map(encodeURIComponent).join("/");
  const address = `${context.endpoint}/${source.repo}/resolve/${encodeURIComponent(commit)}/${encodedPath}`;
  return await withRetries(context, async () => {
    const answer = await sendRequest(context, address, { method: "HEAD", leavesHub: false });
    await answer.discard();
    if (answer.status >= 400) throw await explainRefusal(context, answer, source, path);
    const etag = etagOf(answer.hubHeaders);
    const size = answer.hubHeaders.get("x-linked-size") ?? (answer.status < 300 ? contentLength(answer) : null);
    const sizeBytes = size === null ? listedBytes : Number(size);
    if (etag === null || sizeBytes === null || !Number.isSafeInteger(sizeBytes) || sizeBytes < 0) {
      throw unusable(context, `its answer for "${path}" lacks an ETag or a size`);
    }
    if (listedBytes !== null && listedBytes !== sizeBytes) {
      throw unusable(context, `it lists "${path}" with ${listedBytes} bytes and then offers ${sizeBytes}`);
    }
    const sha256 = /^[0-9a-f]{64}$/.test(etag) ? etag : null;
    return { source, path, address, etag, sizeBytes, sha256 };
  });
}

/** Returns the hub's etag of a file's content; null if it is missing or unusable as a file name. */
export function etagOf(headers: Headers): string | null {
  const value = headers.get("x-linked-etag") ?? headers.get("etag");
  const etag = value?.replace(/^W\//, "").replace(/^"(.*)"$/, "$1") ?? "";
  return /^[A-Za-z0-9][\w.-]{0,199}$/.test(etag) ? etag : null;
}

/** Returns the account name of the token's owner; null if the hub rejects the token. */
export async function whoAmI(context: HubContext): Promise<string | null> {
  return await withRetries(context, async () => {
    const answer = await sendRequest(context, `${context.endpoint}/api/whoami-v2`);
    if (answer.status === 401 || answer.status === 403) {
      await answer.discard();
      return null;
    }
    const account = z.object({ name: z.string() }).safeParse(answer.status === 200 ? await readJson(answer) : null);
    if (account.success) return account.data.name;
    throw unusable(context, `it answered ${answer.status} where an account was expected`);
  });
}

/** Checks that a path from the hub stays inside the folder to which it is joined, on every operating system. */
function isSafePath(path: string): boolean {
  const isPlain = (part: string) => part !== "" && !/^\.{1,2}$/.test(part) && !/[\\:\0]/.test(part);
  return path.split("/").every(isPlain);
}

function contentLength(answer: HubAnswer): string | null {
  return answer.headers.get("content-length");
}

function unusable({ endpoint }: HubContext, problem: string): ServerError {
  return new ServerError("model_source_unreachable", `the hub ${endpoint} cannot be used: ${problem}`, {
    param: "model_id",
  });
}
