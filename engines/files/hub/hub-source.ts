// Owns reading a model's name on the hub: `owner/name[@revision][:file or quantisation]`. Pure. Called by resolve-model.ts
// after it has looked for a local path, which always wins.
import { agreedFile } from "./choice/quantized-file.ts";

export interface HubSource {
  /** `owner/name`. */
  readonly repo: string;
  /** A branch, a tag or a commit. */
  readonly revision: string;
  /** A file of the repository or a quantisation; null leaves the choice to us. */
  readonly wanted: string | null;
}

export const mainBranch = "main";
// These become folder names and parts of addresses: no "..", nothing that starts with "." or "-".
const word = "[A-Za-z0-9_](?:[A-Za-z0-9_-]|\\.(?!\\.))*";
const revision = `${word}(?:/${word})*`;
const revisionPattern = new RegExp(`^${revision}$`);
const sourcePattern = new RegExp(`^(${word}/${word})(?:@(${revision}))?(?::(.+))?$`);

/** What `source` names on the hub, or null where it cannot be a name there. */
export function parseHubSource(source: string, quantizedFile: string | null = null): HubSource | null {
  const [, repo, revision = mainBranch, file = null] = sourcePattern.exec(source) ?? [];
  // The hub has no name with "--", and one that ends in .gguf is a mistyped path.
  if (repo === undefined || /\.gguf$/i.test(repo) || repo.includes("--")) return null;
  return { repo, revision, wanted: agreedFile(source, file, quantizedFile) };
}

/** Whether a text can be a branch, a tag or a commit. */
export function isRevision(given: string): boolean {
  return revisionPattern.test(given);
}

/** Whether a revision is a commit, which never changes. */
export function isCommit(revision: string): boolean {
  return /^[0-9a-f]{40}$/.test(revision);
}
