// Outputs of a tool call: the files that the call created or changed, and the files that the call or the request names. To
// surface a file means to copy it to the staging folder of the file store, so that the client gets it.
import { innerWorkFolder } from "../../../runtime/sandbox/linux/bubblewrap.ts";
import type { FileToStore } from "../../api/agent/files.ts";
import { checkedFileName } from "../../files/file-name.ts";
import { maxScanned, noSnapshot, type Snapshot, snapshot } from "./snapshot.ts";
import { stage } from "./stage-file.ts";
import type { WorkFolder } from "./work-folders.ts";

/** Maximum number of changed files that are surfaced (given to the client) per call, in addition to those that the call names. */
const MAX_SURFACED = 64;
export interface Produced {
  readonly files: readonly FileToStore[];
  /** Notes for the model about files that were not given to the client. */
  readonly notes: readonly string[];
}

export interface OutputCall {
  readonly folder: WorkFolder;
  readonly before: Snapshot;
  /** Files that the call names. A missing file is reported as a failure. */
  readonly named: readonly { readonly name: string; readonly format?: string | undefined }[];
  /** Files that the request expects. An existing file is given to the client once per run, and again when it has changed. */
  readonly expected: readonly { readonly name: string; readonly format: string | null }[];
  readonly stagingFolder: string;
  /** Fields that are equal for all files to store. */
  readonly common: Pick<FileToStore, "source" | "session" | "client">;
  readonly run: string;
  readonly isCancelled: () => boolean;
}

interface Wanted {
  readonly name: string;
  readonly format: string | null;
  readonly isNamed: boolean;
}

/**
 * Returns the state of the files in a work folder. A user's folder is not scanned, because it may have very many files, and the
 * user has the changes anyway. From such a folder, the client gets only files that a call names.
 */
export async function filesOf({ path, isUsers }: WorkFolder): Promise<Snapshot> {
  return isUsers ? noSnapshot : await snapshot(path);
}

export async function outputsOf(call: OutputCall): Promise<Produced> {
  const after = await filesOf(call.folder);
  const { wanted, notes } = claimOutputs(call, after);
  const files: FileToStore[] = [];
  const refused: string[] = [];
  for (const one of wanted) {
    if (call.isCancelled()) break;
    const file = await stageOutput(call, one);
    if (file.failure === null || one.isNamed) files.push(file);
    else refused.push(`${JSON.stringify(one.name.slice(0, 100))}: ${file.failure.message}`);
  }
  return { files, notes: [...notes, ...notesOf(refused)] };
}

/**
 * Chooses the files to surface (give to the client). Records them in `folder.known`, so that a concurrent call does not surface
 * them again.
 */
function claimOutputs({ folder, before, named, expected, run }: OutputCall, after: Snapshot) {
  const { known } = folder;
  for (const name of known.keys()) if (!after.files.has(name)) known.delete(name);
  const asked = named.map(({ name, format }) => ({
    name: withinFolder(name, folder),
    format: format ?? null,
    isNamed: true,
  }));
  const names = new Set(asked.map(({ name }) => name));
  const isNew = (name: string): boolean => {
    const state = after.files.get(name);
    return state !== undefined && before.files.get(name) !== state && known.get(name)?.state !== state;
  };
  const due = expected.filter(({ name }) => {
    const state = after.files.get(name);
    const last = known.get(name);
    return state !== undefined && !names.has(name) && (last?.state !== state || last.run !== run);
  });
  for (const { name } of due) names.add(name);
  const isComplete = before.isComplete && after.isComplete;
  const changed = isComplete ? [...after.files.keys()].filter((name) => !names.has(name) && isNew(name)).sort() : [];
  const surfaced = changed.slice(0, MAX_SURFACED);
  for (const name of [...names, ...surfaced]) {
    const state = after.files.get(name);
    if (state !== undefined) known.set(name, { state, run });
  }
  const wanted: readonly Wanted[] = [
    ...asked,
    ...due.map(({ name, format }) => ({ name, format, isNamed: false })),
    ...surfaced.map((name) => ({ name, format: null, isNamed: false })),
  ];
  const left = changed.length - surfaced.length;
  const notes = [
    ...(left === 0 ? [] : [`${left} more changed files were not surfaced; name them in outputs`]),
    ...(isComplete ? [] : [`more than ${maxScanned} files exist, so only files named in outputs are surfaced`]),
  ];
  return { wanted, notes };
}

const MAX_REFUSED = 3;

function notesOf(refused: readonly string[]): readonly string[] {
  if (refused.length === 0) return [];
  const more = refused.length > MAX_REFUSED ? `; and ${refused.length - MAX_REFUSED} more` : "";
  return [`files that cannot be surfaced: ${refused.slice(0, MAX_REFUSED).join("; ")}${more}`];
}

/** Returns a path relative to the work folder. The model may have written an absolute path, or `./` at the start. */
function withinFolder(name: string, { path }: WorkFolder): string {
  const folder = [innerWorkFolder, path].find((start) => name.startsWith(`${start}/`));
  const relativeName = folder === undefined ? name : name.slice(folder.length + 1);
  return relativeName.replace(/^(?:\.\/)+/, "");
}

/** Copies a file to the staging folder. */
async function stageOutput(call: OutputCall, { name, format }: Wanted): Promise<FileToStore> {
  const base = { ...call.common, id: null, format, purpose: "agent_output" } as const;
  let checked: string;
  try {
    checked = checkedFileName(name, true);
  } catch {
    const shown = JSON.stringify(name.slice(0, 200));
    const failure = { code: "invalid_name", message: `${shown} cannot be the name of a file` };
    return { ...base, name: "unnamed", staged: null, failure };
  }
  // The file is opened under its name on disk, which may have another Unicode normalisation form than `checked`.
  const staged = await stage(call.folder.path, name, call.stagingFolder, call.isCancelled);
  return typeof staged === "string"
    ? { ...base, name: checked, staged, failure: null }
    : { ...base, name: checked, staged: null, failure: staged };
}
