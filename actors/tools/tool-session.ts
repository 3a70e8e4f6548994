// Tool session: the work folder of one session, its Python interpreter and its running shell commands.
import { ServerError } from "../../runtime/errors.ts";
import type { ConfinedProcess, Sandbox } from "../../runtime/sandbox/sandbox.ts";
import type { CellResult, Interpreter } from "./python/interpreter.ts";
import type { PythonStarter } from "./python/starter.ts";
import type { RunningCall } from "./running-call.ts";
import { type CommandResult, notRun, runCommand } from "./shell.ts";
import type { WorkFolder } from "./work-folders.ts";

export interface ToolSessionOptions {
  readonly folder: WorkFolder;
  /** Interpreter that is ready; null: none was. */
  readonly interpreter: Interpreter | null;
  readonly sandbox: Sandbox;
  /** null: Python is not enabled. */
  readonly python: PythonStarter | null;
  readonly shellPath: string;
}

export interface ShellLimits {
  /** Time for all commands together, and for each of them; in milliseconds. */
  readonly callMs: number;
  readonly commandMs: number;
}

export class ToolSession {
  readonly folder: WorkFolder;
  readonly #options: ToolSessionOptions;
  #interpreter: Interpreter | null;
  /** Whether a cell has run since the last reset or note, so that the end of the interpreter loses variables. */
  #hasVariables = false;
  #isRunningCell = false;
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

  get isRunningCell(): boolean {
    return this.#isRunningCell;
  }

  /** Runs work that uses the interpreter, after such work that came before it. */
  inTurn<T>(work: () => Promise<T>): Promise<T> {
    const done = this.#turns.then(work);
    this.#turns = done.catch(() => {});
    return done;
  }

  /** Runs a cell. `note`: what the model should know about the variables; null: nothing. Throws if Python cannot be started. */
  async runCell(
    code: string,
    timeoutMs: number,
    call: RunningCall,
  ): Promise<{ readonly cell: CellResult; readonly note: string | null; readonly workFolder: string }> {
    let note: string | null = null;
    if (!this.hasInterpreter || this.#interpreter === null) {
      this.#interpreter = this.#start();
      if (this.#hasVariables) {
        note = "A new Python interpreter was started: variables of earlier calls are lost, files are kept.";
      }
    }
    const interpreter = this.#interpreter;
    this.#hasVariables = true;
    this.#isRunningCell = true;
    try {
      const cell = await call.during(() => interpreter.kill(), interpreter.run(code, timeoutMs));
      return { cell, note, workFolder: interpreter.workFolder };
    } finally {
      this.#isRunningCell = false;
    }
  }

  #start(): Interpreter {
    const { python } = this.#options;
    this.#mustBeOpen();
    if (python === null) throw new ServerError("unsupported", "Python is not enabled on this server");
    return python.start(this.folder);
  }

  /** Runs commands one after another. Stops when the call is cancelled. */
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
      const options = { sandbox, shellPath, workFolder: this.folder.path, timeoutMs, onStart };
      const result = runCommand(command, options);
      results.push(await call.during(async () => await running?.kill(), result));
      if (running !== null) this.#commands.delete(running);
    }
    return { results, workFolder };
  }

  /** Ends the interpreter and forgets its variables. Returns whether there was one. */
  async reset(): Promise<boolean> {
    const interpreter = this.#interpreter;
    this.#interpreter = null;
    this.#hasVariables = false;
    await interpreter?.kill();
    return interpreter !== null;
  }

  /** Ends the interpreter to make room for others. The next cell says that the variables are lost. */
  async endInterpreter(): Promise<void> {
    await this.#interpreter?.kill();
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
