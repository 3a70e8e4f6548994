// Editing of a call before it runs: in the user's editor (VISUAL, EDITOR), or on the line of the terminal if neither is set.
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ServerError } from "../../runtime/errors.ts";
import type { Questions } from "../run/input/questions.ts";
import { sourceOf } from "./call-source.ts";
import { visibleLine } from "./view/visible-text.ts";

/** Maximum size in bytes of an edited text. */
const MAX_BYTES = 1_000_000;

type Environment = Readonly<Record<string, string | undefined>>;

/** The part of a call's arguments that the user edits. */
interface EditedPart {
  readonly text: string;
  readonly extension: string;
  /** Returns the arguments with this part replaced by `text`. */
  readonly replaced: (text: string) => unknown;
}

/** Returns the arguments as the user has edited them. `kind`: see sourceOf. Throws invalid_value if they cannot be edited or read. */
export async function editedArguments(
  kind: string,
  args: unknown,
  questions: Questions,
  environment: Environment,
): Promise<unknown> {
  const { text, extension, replaced } = partOf(kind, args);
  const editor = environment.VISUAL || environment.EDITOR || null;
  if (editor !== null) return replaced(await questions.lendTerminal(() => inEditor(editor, text, extension)));
  // The line editor of the terminal would execute control characters in the model's text, as if the user had typed them.
  if (visibleLine(text) !== text) {
    throw invalid("several lines and control characters can only be edited in an editor: set VISUAL or EDITOR");
  }
  return replaced((await questions.ask("edit: ", text)) ?? text);
}

function partOf(kind: string, args: unknown): EditedPart {
  const source = sourceOf(kind, args);
  const [text] = source?.texts ?? [];
  if (source === null || text === undefined || source.texts.length > 1) {
    return { text: JSON.stringify(args, null, 2), extension: "json", replaced: parsed };
  }
  const isPython = source.language === "python";
  return {
    text,
    extension: isPython ? "py" : "sh",
    replaced: (edited) => ({ ...(args as object), ...(isPython ? { code: edited } : { commands: [edited] }) }),
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw invalid(`the edited arguments are not JSON: ${(cause as Error).message}`, cause);
  }
}

async function inEditor(editor: string, text: string, extension: string): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-edit-"));
  const file = join(folder, `call.${extension}`);
  try {
    await writeFile(file, text.endsWith("\n") ? text : `${text}\n`, { mode: 0o600 });
    await run(editor, file);
    const { size } = await stat(file);
    if (size > MAX_BYTES) throw invalid(`an edited call has at most ${MAX_BYTES} bytes; got ${size}`);
    const edited = await readFile(file, "utf8");
    return text.endsWith("\n") ? edited : edited.replace(/\n$/, "");
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** Runs the editor. Its command may have arguments, as in `code --wait`. */
async function run(editor: string, file: string): Promise<void> {
  const isWindows = process.platform === "win32";
  const child = isWindows
    ? spawn(`${editor} "${file}"`, { shell: true, stdio: "inherit" })
    : spawn("/bin/sh", ["-c", `${editor} "$1"`, "sh", file], { stdio: "inherit" });
  const [code] = (await once(child, "close")) as [number | null];
  if (code !== 0) throw invalid(`the editor "${editor}" failed with exit code ${code}; the call is not changed`);
}

function invalid(message: string, cause?: unknown): ServerError {
  return new ServerError("invalid_value", message, { cause });
}
