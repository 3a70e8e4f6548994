// File cache: stands in for the browser's Cache API, through which web-llm reads its files. It has the files of one model, which
// the page has copied and checked before. So web-llm sends no request.
import { ServerError } from "../../runtime/errors.ts";

/** Address of the model for web-llm. Nothing is fetched from it: only the last part of an address is used. */
export const modelAddress = "https://model.invalid/resolve/files/";

/** Names of the list of the weights: older and newer versions of web-llm ask for another one of them. */
const lists = ["tensor-cache.json", "ndarray-cache.json"];

/** Replaces `caches` of this worker. */
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

/** Returns the file of a model that web-llm names in one of the ways of its versions. */
export function fileAt(files: ReadonlyMap<string, Blob>, url: string): Blob | undefined {
  const name = nameIn(url);
  const found = files.get(name);
  if (found !== undefined || !lists.includes(name)) return found;
  return lists.map((list) => files.get(list)).find((list) => list !== undefined);
}

function nameIn(url: string): string {
  return decodeURIComponent(url.slice(url.lastIndexOf("/") + 1));
}
