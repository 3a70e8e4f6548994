// Fetch of a file URL: downloads a file that a request refers to by URL, and derives a file name from the URL.
import { ServerError } from "../../../runtime/errors.ts";
import { GuardedFetcher } from "../../../runtime/web/guarded-fetch.ts";
import { fileLimits } from "../../api/agent/files.ts";
import { checkedFileName } from "../../files/file-name.ts";

const param = "file_url";
const headers = { accept: "*/*", "accept-encoding": "identity" };
const limits = {
  headersMs: 30_000,
  totalMs: 30_000,
  redirects: 3,
  sentBytes: fileLimits.maxFileBytes,
  bodyBytes: fileLimits.maxFileBytes,
  minBytesPerSecond: 0,
};

/**
 * Fetches a file. Throws invalid_value if the URL is not allowed, the response does not contain the file, or the file is too
 * large. Throws `cancelled` after the signal is aborted.
 */
export async function fetchFile(
  url: string,
  signal: AbortSignal,
  fetcher = new GuardedFetcher(),
): Promise<{ readonly name: string; readonly content: Uint8Array }> {
  const request = { url, limits, headers, checkHead };
  try {
    const { url: at, body } = await fetcher.fetch(request, signal);
    return { name: nameIn(at), content: body };
  } catch (error) {
    if (!(error instanceof ServerError) || error.code !== "invalid_value") throw error;
    throw new ServerError("invalid_value", `file_url: ${error.message}`, { param, cause: error });
  }
}

function checkHead({ url, status }: { readonly url: URL; readonly status: number }): void {
  if (status === 200) return;
  throw new ServerError("invalid_value", `expected status 200 from ${url.host}, got ${status}`);
}

/**
 * Returns the last segment of the path as a file name, with invalid characters replaced. Returns "download" if the result is not
 * an allowed file name.
 */
export function nameIn({ pathname }: URL): string {
  const last = pathname.split("/").at(-1) ?? "";
  let name = last;
  try {
    name = decodeURIComponent(last);
  } catch {
    // The percent-encoding is not valid UTF-8, so the encoded form is the name.
  }
  const plain = name
    .replaceAll(/[^\p{L}\p{N}._ -]/gu, "_")
    .slice(0, 100)
    .trim();
  try {
    return checkedFileName(plain, false);
  } catch {
    return "download";
  }
}
