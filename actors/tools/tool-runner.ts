// Tool runner: runs the calls of all sessions. A session's first call gets a work folder with an interpreter that is ready.
import { z } from "zod";
import { toErrorRecord } from "../../runtime/errors.ts";
import type { Sandbox } from "../../runtime/sandbox/sandbox.ts";
import type { FileToMount, ToolOutcome, ToolRun, Tools } from "../api/agent/tools.ts";
import { outputsOf, snapshot } from "./outputs.ts";
import type { Interpreter } from "./python/interpreter.ts";
import type { PythonStarter } from "./python/starter.ts";
import { cellOutcome, commandsOutcome, failedOutcome, type Produced, plainOutcome } from "./results.ts";
import { toolArguments } from "./schemas.ts";
import { type RunningCall, ToolSession } from "./tool-session.ts";
import type { WorkFolder, WorkFolders } from "./work-folders.ts";

/** Maximum number of sessions with processes or a folder. The one that was not used for longest is closed first. */
const MAX_SESSIONS = 128;
const MAX_INTERPRETERS = 64;
/** Milliseconds without a call after which a session's processes and folder are removed: longer than the session is kept. */
const IDLE_MS = 35 * 60_000;
const SWEEP_MS = 60_000;

export interface ToolRunnerOptions {
  readonly sandbox: Sandbox;
  /** null: Python is not enabled. */
  readonly python: PythonStarter | null;
  readonly folders: WorkFolders;
  readonly shellPath: string;
  readonly codeTimeoutMs: number;
  readonly shellTimeoutMs: number;
  readonly stagingFolder: string;
}

interface Spare {
  readonly folder: WorkFolder;
  readonly interpreter: Interpreter;
}

export class ToolRunner implements Tools {
  readonly #options: ToolRunnerOptions;
  readonly #sessions = new Map<string, Promise<ToolSession>>();
  readonly #calls = new Map<string, RunningCall>();
  readonly #sweeper = setInterval(() => void this.#closeIdle(), SWEEP_MS).unref();
  /** Folder and interpreter of the next session. */
  #spare: Promise<Spare | null> = Promise.resolve(null);

  constructor(options: ToolRunnerOptions) {
    this.#options = options;
    this.#prepareSpare();
  }

  async run(run: ToolRun): Promise<ToolOutcome> {
    const call: RunningCall = { isCancelled: false, onCancel: () => {} };
    this.#calls.set(run.id, call);
    try {
      const session = await this.#session(run.session);
      session.activeCalls++;
      try {
        const outcome = await this.#runIn(session, run, call);
        return call.isCancelled ? { ...outcome, status: "cancelled" } : outcome;
      } finally {
        session.activeCalls--;
        session.usedAt = performance.now();
      }
    } catch (error) {
      return failedOutcome(toErrorRecord(error).message);
    } finally {
      this.#calls.delete(run.id);
    }
  }

  cancel({ id }: { readonly id: string }): void {
    const call = this.#calls.get(id);
    if (call === undefined) return;
    call.isCancelled = true;
    call.onCancel();
  }

  async mount({ session, files }: { readonly session: string; readonly files: readonly FileToMount[] }): Promise<void> {
    const { folder } = await this.#session(session);
    await this.#options.folders.mount(folder, files);
  }

  async closeSession({ session }: { readonly session: string }): Promise<void> {
    const opened = this.#sessions.get(session);
    this.#sessions.delete(session);
    if (opened === undefined) return;
    const open = await opened.catch(() => null);
    if (open === null) return;
    await open.close();
    await this.#options.folders.remove(open.folder);
  }

  async close(): Promise<void> {
    clearInterval(this.#sweeper);
    for (const call of this.#calls.values()) call.isCancelled = true;
    await Promise.all([...this.#sessions.keys()].map((session) => this.closeSession({ session })));
    await (await this.#spare)?.interpreter.kill();
    await this.#options.sandbox.close();
    await this.#options.folders.removeAll();
  }

  async #runIn(session: ToolSession, run: ToolRun, call: RunningCall): Promise<ToolOutcome> {
    const parsed = argumentsOf(run);
    if ("error" in parsed) return failedOutcome(parsed.error);
    const before = await snapshot(session.folder);
    const produced = async (named: NamedOutputs): Promise<Produced> =>
      await this.#produced(session, run, before, named);
    switch (parsed.tool) {
      case "execute_python": {
        const { code, outputs = [] } = parsed.args;
        call.onCancel = () => void session.killInterpreter();
        if (call.isCancelled) return failedOutcome("the call was cancelled");
        const { cell, note, workFolder } = await session.runCell(code, this.#options.codeTimeoutMs);
        return cellOutcome({ cell, note, workFolder, code }, await produced(outputs));
      }
      case "reset_python_session": {
        const wasRunning = await session.reset();
        return plainOutcome(
          { status: "success", message: wasRunning ? "the interpreter was restarted" : "no interpreter was running" },
          nothing,
        );
      }
      case "shell": {
        const { commands, outputs = [], timeout_ms, max_output_length } = parsed.args;
        const timeoutMs = Math.min(timeout_ms ?? Number.POSITIVE_INFINITY, this.#options.shellTimeoutMs);
        const { results, workFolder } = await session.runCommands(commands, {
          timeoutMs,
          maxOutput: max_output_length ?? null,
          call,
        });
        return commandsOutcome({ commands, results, workFolder }, await produced(outputs));
      }
      default:
        return plainOutcome({ status: "success" }, await produced(parsed.args.outputs));
    }
  }

  async #produced(
    session: ToolSession,
    run: ToolRun,
    before: Awaited<ReturnType<typeof snapshot>>,
    named: NamedOutputs,
  ): Promise<Produced> {
    const { session: id, client, round, turn, tool, firstFile, expected } = run;
    return await outputsOf({
      folder: session.folder,
      before,
      named,
      expected,
      stagingFolder: this.#options.stagingFolder,
      common: { source: { tool: `service_${tool}`, round, turn }, session: id, client },
      run: run.run,
      round,
      firstFile,
    });
  }

  #session(id: string): Promise<ToolSession> {
    const known = this.#sessions.get(id);
    if (known !== undefined) {
      // The order of the map is the order of use.
      this.#sessions.delete(id);
      this.#sessions.set(id, known);
      return known;
    }
    const opening = this.#open();
    this.#sessions.set(id, opening);
    opening.catch(() => this.#sessions.delete(id));
    void this.#limitSessions();
    return opening;
  }

  async #open(): Promise<ToolSession> {
    const spare = await this.#spare;
    this.#prepareSpare();
    const { folders, sandbox, python, shellPath } = this.#options;
    const folder = spare?.folder ?? (await folders.create());
    return new ToolSession({ folder, interpreter: spare?.interpreter ?? null, sandbox, python, shellPath });
  }

  /** Starts an interpreter for the next session. Without one, the session starts its own, and its error is the call's result. */
  #prepareSpare(): void {
    const { python, folders } = this.#options;
    this.#spare =
      python === null
        ? Promise.resolve(null)
        : folders.create().then(
            async (folder) => ({ folder, interpreter: await python.start(folder) }),
            () => null,
          );
    this.#spare = this.#spare.catch(() => null);
  }

  async #limitSessions(): Promise<void> {
    const idle = await this.#idleSessions();
    const excess = this.#sessions.size - MAX_SESSIONS;
    for (const { id } of idle.slice(0, Math.max(excess, 0))) await this.closeSession({ session: id });
    const running = idle.slice(Math.max(excess, 0)).filter(({ session }) => session.hasInterpreter);
    for (const { session } of running.slice(0, Math.max(0, running.length - MAX_INTERPRETERS)))
      await session.killInterpreter();
  }

  async #closeIdle(): Promise<void> {
    const before = performance.now() - IDLE_MS;
    for (const { id, session } of await this.#idleSessions()) {
      if (session.usedAt < before) await this.closeSession({ session: id });
    }
  }

  /** Returns the sessions without a call in progress, the one that was not used for longest first. */
  async #idleSessions(): Promise<readonly { readonly id: string; readonly session: ToolSession }[]> {
    const idle: { id: string; session: ToolSession }[] = [];
    for (const [id, opening] of this.#sessions) {
      const session = await opening.catch(() => null);
      if (session !== null && session.activeCalls === 0) idle.push({ id, session });
    }
    return idle;
  }
}

type NamedOutputs = readonly { readonly name: string; readonly format?: string | undefined }[];

const nothing: Produced = { files: [], omitted: 0 };

type Parsed =
  | { readonly error: string }
  | {
      [T in ToolRun["tool"]]: { readonly tool: T; readonly args: z.output<(typeof toolArguments)[T]> };
    }[ToolRun["tool"]];

/** Parses the arguments, which the model wrote. */
function argumentsOf({ tool, arguments: text }: ToolRun): Parsed {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { error: `expected a JSON object as arguments of ${tool}, got other text` };
  }
  const parsed = toolArguments[tool].safeParse(value);
  if (parsed.success) return { tool, args: parsed.data } as Parsed;
  return { error: `invalid arguments of ${tool}: ${z.prettifyError(parsed.error)}` };
}
