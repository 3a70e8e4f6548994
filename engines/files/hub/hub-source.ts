// Hub source: parses a model's name on the hub, `owner/name[@revision][:file or quantisation]`. Pure. Called by
// resolve-model.ts if no local path matches.
import { agreedFile } from "./choice/quantized-file.ts";

export interface HubSource {
  /** `owner/name`. */
  readonly repo: string;
  /** A branch, a tag or a commit. */
  readonly revision: string;
  /** A file of the repository or a quantisation; null: chosen by preference. */
  readonly wanted: string | null;
}

export const mainBranch = "main";
// The parts become folder names and URL parts: no "..", and no leading "." or "-".
const word = "[A-Za-z0-9_](?:[A-Za-z0-9_-]|\\.(?!\\.))*";
const revision = `${word}(?:/${word})*`;
const revisionPattern = new RegExp(`^${revision}$`);
const sourcePattern = new RegExp(`^(${word}/${word})(?:@(${revision}))?(?::(.+))?$`);

/** The hub name in `source`, or null if it cannot be one. */
export function parseHubSource(source: string, quantizedFile: string | null = null): HubSource | null {
  const [, repo, revision = mainBranch, file = null] = sourcePattern.exec(source) ?? [];
  // Hub names have no "--", and a name that ends in .gguf is a mistyped path.
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
