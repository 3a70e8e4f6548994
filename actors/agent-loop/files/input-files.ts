// Input files of a run: the files in the conversation. File contents that came with the request are stored. All files are copied
// into the session's work folder. For each file, a note with its metadata and the beginning of its text is added to the prompt.
import { createHash } from "node:crypto";
import type { PromptChanges } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { ClientGate } from "../../../runtime/queues/keyed-gates.ts";
import type { InputFile } from "../../api/agent/agents.ts";
import { type Files, fileLimits, type StoredFile } from "../../api/agent/files.ts";
import type { FileToMount } from "../../api/agent/tools.ts";
import { stageBytes } from "../../files/stage-bytes.ts";

/** Fetches the bytes of a file URL. Throws a ServerError. */
export type FetchFile = (
  url: string,
  signal: AbortSignal,
) => Promise<{ readonly name: string; readonly content: Uint8Array }>;

/** Maximum number of files that are loaded from URLs at the same time, half of them of one client. Each takes as much memory as its size. */
const maxLoads = 8;
const gate = new ClientGate(maxLoads);

export interface InputRun {
  readonly client: string;
  readonly session: string;
  readonly turn: number;
  readonly signal: AbortSignal;
}

export interface PreparedFiles {
  readonly notes: PromptChanges["notes"];
  readonly mounts: readonly FileToMount[];
  readonly ids: readonly string[];
}

/**
 * Stores the files and returns their descriptions. Throws invalid_value if there are too many files, or if one is unknown or cannot be
 * used.
 */
export async function prepareFiles(
  inputs: readonly InputFile[],
  files: Files,
  fetchFile: FetchFile,
  run: InputRun,
): Promise<PreparedFiles> {
  const notes: { at: number; text: string }[] = [];
  /** Files by name: a later file replaces an earlier one of the same name. */
  const mounts = new Map<string, FileToMount>();
  const ids: string[] = [];
  let left: number = fileLimits.requestPreviewCharacters;
  if (inputs.length > fileLimits.maxInputFiles) {
    const message = `expected at most ${fileLimits.maxInputFiles} files in a request, got ${inputs.length}; send fewer`;
    throw new ServerError("invalid_value", message, { param: "files" });
  }
  for (const input of inputs) {
    if (run.signal.aborted) throw new ServerError("cancelled", "the request was cancelled while its files were read");
    const file = await storedFile(input, files, fetchFile, run);
    const found = await files.content(file.id);
    if (found?.kind !== "content") throw unknownFile(file.id);
    const preview =
      file.preview === null ? null : file.preview.slice(0, Math.min(fileLimits.inputPreviewCharacters, left));
    left -= preview?.length ?? 0;
    notes.push({ at: input.message, text: noteOf(file, preview) });
    mounts.set(file.name, { name: file.name, path: found.path });
    if (!ids.includes(file.id)) ids.push(file.id);
  }
  return { notes, mounts: [...mounts.values()], ids };
}

async function storedFile(input: InputFile, files: Files, fetchFile: FetchFile, run: InputRun): Promise<StoredFile> {
  if ("id" in input) {
    const file = await files.find(input.id);
    if (file === null) throw unknownFile(input.id);
    if (file.failure === null) return file;
    throw new ServerError("invalid_value", `file "${input.id}" was not produced: ${file.failure.message}`, {
      param: "file_id",
    });
  }
  if (!("url" in input)) return await added(input, files, run);
  // The content stays in memory until it is stored.
  const load = async () => await added(await fetched(input, fetchFile, run.signal), files, run);
  return await gate.pass(load, run.client, run.signal);
}

/** Stores the content of a file that came with the request or from a URL. */
async function added(
  { name, content }: { readonly name: string; readonly content: Uint8Array },
  files: Files,
  run: InputRun,
): Promise<StoredFile> {
  // The id is a digest of the file, so a file that a client sends again with each request is stored once, and the prompt stays the same.
  const id = `file-${createHash("sha256").update(`${run.client}\0${name}\0`).update(content).digest("hex").slice(0, 32)}`;
  const known = await files.content(id);
  if (known?.kind === "content") return known.file;
  const staged = await stageBytes(files.stagingFolder, "input", content);
  return await files.add({
    id,
    name,
    format: null,
    purpose: "user_data",
    source: { tool: "request", round: 0, turn: run.turn },
    session: run.session,
    client: run.client,
    staged,
    failure: null,
  });
}

async function fetched(
  { url, name }: Extract<InputFile, { readonly url: string }>,
  fetchFile: FetchFile,
  signal: AbortSignal,
): Promise<{ readonly name: string; readonly content: Uint8Array }> {
  const file = await fetchFile(url, signal);
  return { name: name ?? file.name, content: file.content };
}

function unknownFile(id: string): ServerError {
  return new ServerError(
    "invalid_value",
    `expected the id of a stored file, got "${id}"; it may have expired: upload it again`,
    {
      param: "file_id",
    },
  );
}

function noteOf({ id, name, mimeType, bytes }: StoredFile, preview: string | null): string {
  const head = `[File ${JSON.stringify(name)}, id ${id}, ${mimeType}, ${bytes} bytes]`;
  return preview === null || preview === "" ? head : `${head}\n${preview}`;
}
