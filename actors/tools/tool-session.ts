// Tool session: the work folder of one session, its Python interpreter and its running shell commands.
import { ServerError } from "../../runtime/errors.ts";
import type { ConfinedProcess, Sandbox } from "../../runtime/sandbox/sandbox.ts";
import type { WorkFolder } from "./files/work-folders.ts";
import type { CellResult, Interpreter } from "./python/interpreter.ts";
import type { PythonStarter } from "./python/starter.ts";
import type { RunningCall } from "./running-call.ts";
import { type CommandResult, notRun, runCommand } from "./shell.ts";

export interface ToolSessionOptions {
  readonly folder: WorkFolder;
  /** Interpreter that was prepared in advance; null = none was available. */
  readonly interpreter: Interpreter | null;
  readonly sandbox: Sandbox;
  /** Starts interpreters; null = Python is not enabled. */
  readonly python: PythonStarter | null;
  readonly shellPath: string;
}

export interface ShellLimits {
  /** Time limits in ms: of all commands together, and of each command. */
  readonly callMs: number;
  readonly commandMs: number;
}

export class ToolSession {
  readonly folder: WorkFolder;
  readonly #options: ToolSessionOptions;
  #interpreter: Interpreter | null;
  #usesInterpreter = false;
  /** Resolves when the interpreter has been ended to make room for other sessions; null = it is not being ended. */
  #ending: Promise<void> | null = null;
  /** Whether a cell has run in the interpreter, so that ending it loses variables. */
  #hasVariables = false;
  /** Note for the result of the next Python call; null = no note. */
  #note: string | null = null;
  #turns: Promise<unknown> = Promise.resolve();
  readonly #commands = new Set<ConfinedProcess>();
  #isClosed = false;

  constructor(options: ToolSessionOptions) {
    this.#options = options;
    this.#interpreter = options.interpreter;
    this.folder = options.folder;
  }

  get hasInterpreter(): boolean {
    return this.#interpreter !== null && !this.#interpreter.hasEnded;
  }

  /** Whether a cell is running or about to run. If so, the interpreter must not be ended to make room for other sessions. */
  get usesInterpreter(): boolean {
    return this.#usesInterpreter;
  }

  /** Runs work that uses the interpreter, after all earlier work of this kind has finished. */
  inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#turns.then(work);
    this.#turns = done.catch(() => {});
    return done;
  }

  /**
   * Runs work with the interpreter, which is started if necessary. `makeRoom`: ends another interpreter, or waits until one can
   * be ended; returns null if one more may be started now.
   */
  async withInterpreter<T>(makeRoom: () => Promise<void> | null, work: () => Promise<T>): Promise<T> {
    this.#usesInterpreter = true;
    try {
      for (;;) {
        if (this.#ending !== null) await this.#ending;
        else if (this.hasInterpreter) return await work();
        else {
          const room = makeRoom();
          if (room === null) this.#startInterpreter();
          else await room;
        }
      }
    } finally {
      this.#usesInterpreter = false;
    }
  }

  /** Starts an interpreter to replace one that has ended. Throws if Python cannot be started. */
  #startInterpreter(): void {
    const { python } = this.#options;
    this.#mustBeOpen();
    if (python === null) throw new ServerError("unsupported", "Python is not enabled on this server");
    this.#interpreter = python.start(this.folder);
    if (!this.#hasVariables) return;
    this.#hasVariables = false;
    this.#note = "A new Python interpreter was started: variables of earlier calls are lost, files are kept.";
  }

  /** Runs a cell in the interpreter. `note`: tells the model that variables were lost; null = no note. */
  async runCell(
    code: string,
    timeoutMs: number,
    call: RunningCall,
  ): Promise<{ readonly cell: CellResult; readonly note: string | null; readonly workFolder: string }> {
    const interpreter = this.#interpreter;
    if (interpreter === null) throw new ServerError("cancelled", "the interpreter was ended while the call waited");
    const note = this.#note;
    this.#note = null;
    this.#hasVariables = true;
    const cell = await call.during(() => interpreter.kill(), interpreter.run(code, timeoutMs));
    return { cell, note, workFolder: interpreter.workFolder };
  }

  /** Runs commands one after another, until the call is cancelled. */
  async runCommands(
    commands: readonly string[],
    { callMs, commandMs }: ShellLimits,
    call: RunningCall,
  ): Promise<{ readonly results: readonly CommandResult[]; readonly workFolder: string }> {
    const { sandbox, shellPath } = this.#options;
    const endsAt = performance.now() + callMs;
    const results: CommandResult[] = [];
    let workFolder = this.folder.path;
    for (const command of commands) {
      if (call.isCancelled) break;
      this.#mustBeOpen();
      const leftMs = endsAt - performance.now();
      if (leftMs <= 0) {
        results.push(notRun);
        continue;
      }
      let running: ConfinedProcess | null = null;
      const onStart = (process: ConfinedProcess): void => {
        running = process;
        workFolder = process.workFolder;
        this.#commands.add(process);
      };
      const timeoutMs = Math.min(commandMs, leftMs);
      const options = { sandbox, shellPath, folder: this.folder, timeoutMs, onStart };
      const result = runCommand(command, options);
      results.push(await call.during(async () => await running?.kill(), result));
      if (running !== null) this.#commands.delete(running);
    }
    return { results, workFolder };
  }

  /** Ends the interpreter, so that its variables are lost. Returns whether there was an interpreter. */
  async reset(): Promise<boolean> {
    const interpreter = this.#interpreter;
    this.#interpreter = null;
    this.#hasVariables = false;
    this.#note = null;
    await interpreter?.kill();
    return interpreter !== null;
  }

  /** Ends the interpreter to make room for other sessions. The result of the next Python call then says that the variables are lost. */
  async endInterpreter(): Promise<void> {
    this.#ending ??= this.#interpreter?.kill() ?? null;
    await this.#ending;
    this.#ending = null;
  }

  /** Ends all processes. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([this.#interpreter?.kill(), ...[...this.#commands].map((command) => command.kill())]);
  }

  #mustBeOpen(): void {
    if (this.#isClosed) throw new ServerError("cancelled", "the session was closed while the call waited");
  }
}
