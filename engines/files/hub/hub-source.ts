// Hub source: parses the name of a model on the hub, `owner/name[@revision][:file or quantisation]`. No disk or network
// access. Called by resolve-model.ts if no local path has this name.
import { agreedFile } from "./choice/quantized-file.ts";

export interface HubSource {
  /** Repository name: `owner/name`. */
  readonly repo: string;
  /** Name of a branch or tag, or a commit id. */
  readonly revision: string;
  /** A file of the repository, or a quantisation; null = chosen by preference. */
  readonly wanted: string | null;
}

export const mainBranch = "main";
// The parts become folder names and URL parts, so ".." and a leading "." or "-" are not allowed.
const word = "[A-Za-z0-9_](?:[A-Za-z0-9_-]|\\.(?!\\.))*";
const revision = `${word}(?:/${word})*`;
const revisionPattern = new RegExp(`^${revision}$`);
const sourcePattern = new RegExp(`^(${word}/${word})(?:@(${revision}))?(?::(.+))?$`);

/** Parses `source` as a hub name; returns null if it cannot be one. */
export function parseHubSource(source: string, quantizedFile: string | null = null): HubSource | null {
  const [, repo, revision = mainBranch, file = null] = sourcePattern.exec(source) ?? [];
  // Names on the hub have no "--". A name that ends in .gguf is more likely a mistyped path.
  if (repo === undefined || /\.gguf$/i.test(repo) || repo.includes("--")) return null;
  return { repo, revision, wanted: agreedFile(source, file, quantizedFile) };
}

/** Whether a text has the form of a branch, tag or commit. */
export function isRevision(given: string): boolean {
  return revisionPattern.test(given);
}

/** Whether a revision is a commit id. Commits never change. */
export function isCommit(revision: string): boolean {
  return /^[0-9a-f]{40}$/.test(revision);
}
