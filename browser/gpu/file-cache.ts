// File cache: replaces the browser's Cache API, through which web-llm reads its files. It contains the files of one model,
// which the page has already copied and checked, so web-llm sends no requests.
import { ServerError } from "../../runtime/errors.ts";

/** Base URL of the model's files for web-llm. Nothing is fetched from it; only the last segment of a URL is used. */
export const modelAddress = "https://model.invalid/resolve/files/";

/** File names of the list of weights in newer and older versions of web-llm. */
const lists = ["tensor-cache.json", "ndarray-cache.json"];

/** Replaces the global `caches` of this worker by one with the given files. */
export function serveFiles(files: ReadonlyMap<string, Blob>): void {
  const cache = {
    match: async ({ url }: Request) => {
      const file = fileAt(files, url);
      return file === undefined ? undefined : new Response(file);
    },
    add: async ({ url }: Request) => {
      throw new ServerError("not_found", `the model has no file ${nameIn(url)}: delete it, and copy it again`);
    },
    keys: async () => [...files.keys()].map((name) => new Request(modelAddress + name)),
  };
  Object.defineProperty(globalThis, "caches", { value: { open: async () => cache } });
}

/**
 * Returns the model file to which a URL of web-llm refers. If the list of weights is missing under one name, it is looked up
 * under the other.
 */
export function fileAt(files: ReadonlyMap<string, Blob>, url: string): Blob | undefined {
  const name = nameIn(url);
  const found = files.get(name);
  if (found !== undefined || !lists.includes(name)) return found;
  return lists.map((list) => files.get(list)).find((list) => list !== undefined);
}

function nameIn(url: string): string {
  return decodeURIComponent(url.slice(url.lastIndexOf("/") + 1));
}
