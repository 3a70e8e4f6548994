// Tool session: the work folder of one session, its Python interpreter and its running shell commands.
import { ServerError } from "../../runtime/errors.ts";
import type { ConfinedProcess, Sandbox } from "../../runtime/sandbox/sandbox.ts";
import type { CellResult, Interpreter } from "./python/interpreter.ts";
import type { PythonStarter } from "./python/starter.ts";
import { type CommandResult, runCommand } from "./shell.ts";
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

export class ToolSession {
  readonly folder: WorkFolder;
  usedAt = performance.now();
  /** Number of calls in progress. */
  activeCalls = 0;
  readonly #options: ToolSessionOptions;
  #interpreter: Interpreter | null;
  /** Whether an interpreter of the session has ended, so that its variables are lost. */
  #hasLostState = false;
  #cells: Promise<unknown> = Promise.resolve();
  readonly #commands = new Set<ConfinedProcess>();
  #isClosed = false;

  constructor(options: ToolSessionOptions) {
    this.#options = options;
    this.folder = options.folder;
    this.#interpreter = options.interpreter;
  }

  get hasInterpreter(): boolean {
    return this.#interpreter !== null && !this.#interpreter.hasEnded;
  }

  /** Runs a cell after the cells before it. `note`: what the model should know about the state; null: nothing. */
  runCell(
    code: string,
    timeoutMs: number,
  ): Promise<{ readonly cell: CellResult; readonly note: string | null; readonly workFolder: string }> {
    const ran = this.#cells.then(async () => {
      if (this.#interpreter === null || this.#interpreter.hasEnded) {
        const { python } = this.#options;
        if (python === null) throw new ServerError("unsupported", "Python is not enabled on this server");
        this.#interpreter = await python.start(this.folder);
      }
      const note = this.#hasLostState
        ? "A new Python interpreter was started: variables of earlier calls are lost, files are kept."
        : null;
      this.#hasLostState = false;
      const interpreter = this.#interpreter;
      const cell = await interpreter.run(code, timeoutMs);
      if (cell.hasEnded) this.#hasLostState = true;
      return { cell, note, workFolder: interpreter.workFolder };
    });
    this.#cells = ran.catch(() => {});
    return ran;
  }

  /** Runs commands one after another. Stops when the call is cancelled. */
  async runCommands(
    commands: readonly string[],
    {
      timeoutMs,
      maxOutput,
      call,
    }: { readonly timeoutMs: number; readonly maxOutput: number | null; readonly call: RunningCall },
  ): Promise<{ readonly results: readonly CommandResult[]; readonly workFolder: string }> {
    const { sandbox, shellPath } = this.#options;
    const results: CommandResult[] = [];
    let workFolder = this.folder.path;
    for (const command of commands) {
      if (call.isCancelled || this.#isClosed) break;
      let running: ConfinedProcess | null = null;
      const onStart = (process: ConfinedProcess): void => {
        running = process;
        workFolder = process.workFolder;
        this.#commands.add(process);
        call.onCancel = () => void process.kill();
      };
      results.push(
        await runCommand(command, { sandbox, shellPath, workFolder: this.folder.path, timeoutMs, maxOutput, onStart }),
      );
      if (running !== null) this.#commands.delete(running);
    }
    return { results, workFolder };
  }

  /** Ends the interpreter and forgets its variables. Returns whether there was one. */
  async reset(): Promise<boolean> {
    const interpreter = this.#interpreter;
    this.#interpreter = null;
    this.#hasLostState = false;
    await interpreter?.kill();
    return interpreter !== null;
  }

  /** Kills the interpreter because a call is cancelled. */
  async killInterpreter(): Promise<void> {
    await this.#interpreter?.kill();
  }

  /** Ends all processes. */
  async close(): Promise<void> {
    this.#isClosed = true;
    await Promise.all([this.#interpreter?.kill(), ...[...this.#commands].map((command) => command.kill())]);
  }
}

/** A call in progress. */
export interface RunningCall {
  isCancelled: boolean;
  /** Ends what the call runs now. */
  onCancel: () => void;
}
