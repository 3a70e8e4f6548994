// Session files: conversations of the agent on the command line, one file per session, so that a later command can continue
// them. A session is saved after each tool result, so that even the conversation of a killed command can be continued.
import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, rename, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { serializedSessionSchema } from "../../../actors/api/agent/serialized-session.ts";
import { sessionLimits } from "../../../actors/api/agent/sessions.ts";
import { ServerError } from "../../../runtime/errors.ts";

/** Maximum number of session files. The oldest ones are removed. */
const MAX_FILES = 128;
const MAX_BYTES = 2 * sessionLimits.maxSessionBytes;
const idPattern = /^[A-Za-z0-9_-]{1,128}$/;

const savedSchema = z.strictObject({
  id: z.string().regex(idPattern),
  folder: z.string(),
  session: serializedSessionSchema,
});

/** A session with the folder in which its tools work. */
export type SavedSession = z.output<typeof savedSchema>;

export class SessionFiles {
  readonly #folder: string | null;

  /** `folder`: folder of the session files; null if sessions are not saved. */
  constructor(folder: string | null) {
    this.#folder = folder;
  }

  /** Whether sessions are saved. */
  get isKept(): boolean {
    return this.#folder !== null;
  }

  /** Saves a session in place of its earlier state. Throws the error of the file system. */
  async save(saved: SavedSession): Promise<void> {
    if (this.#folder === null) return;
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    const name = `${folderKey(saved.folder)}-${saved.id}.json`;
    const written = join(this.#folder, `${name}.${process.pid}.tmp`);
    await writeFile(written, JSON.stringify(saved), { mode: 0o600 });
    await rename(written, join(this.#folder, name));
    for (const old of (await this.#newestFirst("")).slice(MAX_FILES))
      await rm(join(this.#folder, old), { force: true });
  }

  /** Returns the session with an id. Throws invalid_value if there is none, or if it belongs to another work folder. */
  async named(id: string, workFolder: string): Promise<SavedSession> {
    const name = (await this.#newestFirst("")).find((file) => file.endsWith(`-${id}.json`));
    if (!idPattern.test(id) || name === undefined)
      throw invalid(`no session has the id ${JSON.stringify(id.slice(0, 200))}`);
    const saved = await this.#read(name);
    if (saved.folder === workFolder) return saved;
    throw invalid(`the session ${id} works in ${saved.folder}, not in ${workFolder}: name its folder with --folder`);
  }

  /** Returns the most recent session of a work folder. Throws invalid_value if there is none. */
  async last(workFolder: string): Promise<SavedSession> {
    const [name] = await this.#newestFirst(folderKey(workFolder));
    if (name === undefined) throw invalid(`no session of the folder ${workFolder} can be continued`);
    return await this.#read(name);
  }

  async #read(name: string): Promise<SavedSession> {
    const path = join(this.#folder ?? "", name);
    try {
      if ((await stat(path)).size > MAX_BYTES) throw new Error(`it has more than ${MAX_BYTES} bytes`);
      return savedSchema.parse(JSON.parse(await readFile(path, "utf8")));
    } catch (cause) {
      throw invalid(`the session in ${path} cannot be read: ${(cause as Error).message}`);
    }
  }

  /** Returns the names of the files that begin with `prefix`, the newest first. */
  async #newestFirst(prefix: string): Promise<readonly string[]> {
    const folder = this.#folder;
    if (folder === null) return [];
    const names = (await readdir(folder).catch(() => [])).filter(
      (name) => name.startsWith(prefix) && name.endsWith(".json"),
    );
    const times = await Promise.all(
      names.map((name) =>
        stat(join(folder, name)).then(
          (found) => found.mtimeMs,
          () => 0,
        ),
      ),
    );
    const timed = names.map((name, i) => ({ name, time: times[i] ?? 0 }));
    return timed.sort((one, other) => other.time - one.time).map(({ name }) => name);
  }
}

/** Returns the part of a file's name that identifies the work folder. */
function folderKey(workFolder: string): string {
  return createHash("sha256").update(workFolder).digest("hex").slice(0, 16);
}

function invalid(message: string): ServerError {
  return new ServerError("invalid_value", message, { param: "session" });
}
