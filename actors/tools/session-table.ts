// Session table: the open sessions with their work folders, in the order of their last use. A new session gets a folder and
// interpreter that were prepared in advance. Sessions without running calls are closed when there are too many sessions, or when
// they have been idle for IDLE_MS.
import { ServerError } from "../../runtime/errors.ts";
import type { Sandbox } from "../../runtime/sandbox/sandbox.ts";
import type { WorkFolder, WorkFolders } from "./files/work-folders.ts";
import type { Interpreter } from "./python/interpreter.ts";
import type { PythonStarter } from "./python/starter.ts";
import { ToolSession } from "./tool-session.ts";

/** Number of open sessions above which sessions without running calls are closed. */
const MAX_SESSIONS = 128;
/** Maximum number of interpreters, including the one prepared for the next session. */
const MAX_INTERPRETERS = 64;
/** Milliseconds without a call after which a session's processes and folder are removed. */
const IDLE_MS = 60 * 60_000;
const SWEEP_MS = 60_000;

/** Maximum number of concurrent Python calls, each of which needs an interpreter. */
export const maxRunningCells = MAX_INTERPRETERS - 1;

export interface SessionTableOptions {
  readonly sandbox: Sandbox;
  /** Starts interpreters; null = Python is not enabled. */
  readonly python: PythonStarter | null;
  readonly folders: WorkFolders;
  readonly shellPath: string;
  /** Logs an error that does not end a call. */
  readonly warn: (fields: object, message: string) => void;
}

interface Entry {
  readonly opened: Promise<ToolSession>;
  session: ToolSession | null;
  /** Number of calls in progress in the session. */
  uses: number;
  usedAt: number;
}

interface Spare {
  readonly folder: WorkFolder;
  readonly interpreter: Interpreter;
}

export class SessionTable {
  readonly #options: SessionTableOptions;
  /** Sessions by id, least recently used first. */
  readonly #entries = new Map<string, Entry>();
  readonly #sweeper = setInterval(() => this.#sweep(), SWEEP_MS).unref();
  #spare: Promise<Spare | null> = Promise.resolve(null);
  #isClosed = false;

  constructor(options: SessionTableOptions) {
    this.#options = options;
    this.#prepareSpare();
  }

  has(id: string): boolean {
    return this.#entries.has(id);
  }

  /** Runs work in a session, which is opened if it does not exist. */
  async use<T>(id: string, work: (session: ToolSession) => Promise<T>): Promise<T> {
    if (this.#isClosed) throw new ServerError("draining", "the tools of the server are being stopped");
    const entry = this.#entries.get(id) ?? this.#open(id);
    this.#entries.delete(id);
    this.#entries.set(id, entry);
    entry.uses++;
    try {
      return await work(await entry.opened);
    } finally {
      entry.uses--;
      entry.usedAt = performance.now();
    }
  }

  /**
   * Runs work with a session's interpreter, which is started if the session has none. If too many interpreters are running, an
   * unused one is ended first. At most maxRunningCells calls of this method may run concurrently.
   */
  async withInterpreter<T>(session: ToolSession, work: () => Promise<T>): Promise<T> {
    const makeRoom = (): Promise<void> | null => {
      const live = this.#withInterpreters();
      return live.length < maxRunningCells ? null : endOneOf(live);
    };
    return await session.withInterpreter(makeRoom, work);
  }

  /** Ends the processes of a session and removes its folder. */
  async close(id: string): Promise<void> {
    const entry = this.#entries.get(id);
    this.#entries.delete(id);
    const session = await entry?.opened.catch(() => null);
    if (session == null) return;
    await session.close();
    await this.#options.folders.remove(session.folder);
  }

  async closeAll(): Promise<void> {
    this.#isClosed = true;
    clearInterval(this.#sweeper);
    const spare = await this.#spare;
    await spare?.interpreter.kill();
    await Promise.all([...this.#entries.keys()].map((id) => this.close(id)));
  }

  #open(id: string): Entry {
    const opened = this.#opened();
    const entry: Entry = { opened, session: null, uses: 0, usedAt: performance.now() };
    opened.then(
      (session) => {
        entry.session = session;
      },
      () => {
        if (this.#entries.get(id) === entry) this.#entries.delete(id);
      },
    );
    this.#closeUnused(this.#entries.size + 1 - MAX_SESSIONS, Number.POSITIVE_INFINITY);
    return entry;
  }

  async #opened(): Promise<ToolSession> {
    const taken = this.#spare;
    this.#prepareSpare();
    const spare = await taken;
    const { folders, sandbox, python, shellPath } = this.#options;
    const folder = spare?.folder ?? (await folders.create());
    return new ToolSession({ folder, interpreter: spare?.interpreter ?? null, sandbox, python, shellPath });
  }

  /** Returns the sessions with an interpreter. Includes sessions that are still being opened, because they may get one. */
  #withInterpreters(): readonly Entry[] {
    return [...this.#entries.values()].filter(({ session }) => session === null || session.hasInterpreter);
  }

  /**
   * Starts an interpreter for the next session. If this fails, the next session starts its own interpreter, and an error is then
   * the result of its call.
   */
  #prepareSpare(): void {
    const { python, folders } = this.#options;
    this.#spare = Promise.resolve(null);
    if (python === null || this.#withInterpreters().length >= maxRunningCells) return;
    const prepared = folders.create().then(async (folder) => {
      try {
        return { folder, interpreter: python.start(folder) };
      } catch {
        await folders.remove(folder);
        return null;
      }
    });
    this.#spare = prepared.catch(() => null);
  }

  #sweep(): void {
    this.#closeUnused(Number.POSITIVE_INFINITY, performance.now() - IDLE_MS);
  }

  /** Closes at most `count` sessions that have no running calls and were last used before `usedBefore`, least recently used first. */
  #closeUnused(count: number, usedBefore: number): void {
    const unused = [...this.#entries].filter(([, { uses, usedAt }]) => uses === 0 && usedAt < usedBefore);
    for (const [id] of unused.slice(0, Math.max(0, count))) {
      this.close(id).catch((error: unknown) => {
        this.#options.warn(
          { reason: error instanceof Error ? error.message : String(error) },
          "the folder of a session without use could not be removed",
        );
      });
    }
  }
}

/** Ends an unused interpreter, preferably that of a session without running calls. */
async function endOneOf(entries: readonly Entry[]): Promise<void> {
  const unused = entries.filter(({ session }) => session?.usesInterpreter === false);
  const victim = unused.find(({ uses }) => uses === 0) ?? unused[0];
  if (victim !== undefined) {
    await victim.session?.endInterpreter();
    return;
  }
  const opening = entries.filter(({ session }) => session === null);
  if (opening.length === 0) throw new ServerError("internal", "more cells run than there may be interpreters");
  // All interpreters of open sessions are in use. Waits until another session is open, whose interpreter can then be ended.
  await Promise.race(opening.map(({ opened }) => opened.catch(() => null)));
}
