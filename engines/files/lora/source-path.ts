// Adapter source path: opens the files of the adapter at a path given by a client; the adapter is a PEFT folder or one
// GGUF file. If a root folder is set, every opened file must be inside that folder.
import { realpath, stat } from "node:fs/promises";
import { join, resolve } from "node:path";
import { ServerError } from "../../../runtime/errors.ts";
import { expecting } from "./adapter-problems.ts";
import { isInside, leadsInto, SourceFile } from "./source-file.ts";

export type SourceFiles =
  | { readonly kind: "peft"; readonly config: SourceFile; readonly weights: SourceFile }
  | { readonly kind: "gguf"; readonly file: SourceFile };

export interface SourceLimits {
  /** Folder in which adapters must lie; null = no restriction. */
  readonly root: string | null;
  /** Maximum size of a file with tensors, in bytes. */
  readonly maxBytes: number;
}

const maxConfigBytes = 1024 * 1024;
/** Bytes that a file may have in addition to its tensors. */
const headerAllowance = 16 * 1024 * 1024;

/** Returns the maximum size of an adapter file whose tensors have at most `maxBytes` bytes. */
export function largestFile(maxBytes: number): number {
  return maxBytes + headerAllowance;
}

/**
 * Opens the adapter at `source`. Relative paths start at the root folder, or at the working directory if there is no
 * root.
 */
export async function openSource(source: string, limits: SourceLimits): Promise<SourceFiles> {
  const root = limits.root === null ? null : await realpath(limits.root);
  const path = await locate(source, root);
  const inRoot = { root, maxBytes: largestFile(limits.maxBytes) };
  if (!(await stat(path)).isDirectory()) {
    return { kind: "gguf", file: await SourceFile.open(path, "the file", inRoot) };
  }
  const openIn = (name: string, maxBytes: number) => SourceFile.open(join(path, name), name, { root, maxBytes });
  const config = await openIn("adapter_config.json", maxConfigBytes);
  try {
    return { kind: "peft", config, weights: await openIn("adapter_model.safetensors", inRoot.maxBytes) };
  } catch (error) {
    await config.close();
    throw error;
  }
}

/** Resolves a path given by a client to a real path. */
async function locate(source: string, root: string | null): Promise<string> {
  if (source === "" || source.includes("\0")) throw noPath(source === "" ? "got an empty text" : "got one with a NUL");
  const named = resolve(root ?? "", source);
  const forbidden = new ServerError(
    "adapter_path_forbidden",
    "the path leads out of the folder that adapters may be loaded from; name a path in it, or relative to it",
  );
  const missing = new ServerError("adapter_path_not_found", "there is nothing at this path; check it");
  const circle = noPath("got a circle of links");
  const known = { ENOENT: missing, ENOTDIR: missing, ELOOP: circle, ENAMETOOLONG: noPath("got a longer one") };
  const real = await expecting(known, () => realpath(named)).catch(async (error: unknown) => {
    throw root === null || (await leadsInto(root, named)) ? error : forbidden;
  });
  if (root !== null && !isInside(root, real)) throw forbidden;
  return real;
}

function noPath(found: string): ServerError {
  return new ServerError(
    "invalid_adapter_path",
    `expected the path of a folder or file that the system takes, ${found}`,
  );
}
