// Tool runner: parses and runs the calls of all sessions.
import { z } from "zod";
import { toErrorRecord } from "../../runtime/errors.ts";
import { ClientGate } from "../../runtime/queues/keyed-gates.ts";
import type { FileToMount, ToolOutcome, ToolRun, Tools } from "../api/agent/tools.ts";
import { filesOf, outputsOf, type Produced } from "./files/outputs.ts";
import { innerSkillsFolder } from "./files/session-skills.ts";
import type { Snapshot } from "./files/snapshot.ts";
import { unstage } from "./files/stage-file.ts";
import { cancelledOutcome, cellOutcome, commandsOutcome, failedOutcome, noFiles, plainOutcome } from "./results.ts";
import { RunningCall } from "./running-call.ts";
import { toolArguments } from "./schemas.ts";
import { maxRunningCells, SessionTable, type SessionTableOptions } from "./session-table.ts";
import type { ToolSession } from "./tool-session.ts";

/** Maximum number of shell calls that run at the same time. One client may have half of them, and of Python calls. */
const MAX_RUNNING_COMMANDS = 64;

export interface ToolRunnerOptions extends SessionTableOptions {
  readonly codeTimeoutMs: number;
  /** Time limit in ms of all commands of a call together. */
  readonly shellTimeoutMs: number;
  readonly stagingFolder: string;
}

export class ToolRunner implements Tools {
  readonly #options: ToolRunnerOptions;
  readonly #sessions: SessionTable;
  readonly #calls = new Map<string, RunningCall>();
  readonly #cells = new ClientGate(maxRunningCells);
  readonly #commands = new ClientGate(MAX_RUNNING_COMMANDS);

  constructor(options: ToolRunnerOptions) {
    this.#options = options;
    this.#sessions = new SessionTable(options);
  }

  async run(run: ToolRun): Promise<ToolOutcome> {
    const parsed = argumentsOf(run);
    if ("error" in parsed) return failedOutcome(parsed.error);
    const call = new RunningCall();
    this.#calls.set(run.id, call);
    try {
      const work = this.#sessions.use(run.session, async (session) => {
        const outcome = await this.#runIn(session, run, parsed, call);
        if (!call.isCancelled) return outcome;
        await unstage(outcome.files, this.#options.stagingFolder);
        return cancelledOutcome();
      });
      return await Promise.race([work, call.cancelled.then(cancelledOutcome)]);
    } catch (error) {
      return call.isCancelled ? cancelledOutcome() : failedOutcome(toErrorRecord(error).message);
    } finally {
      this.#calls.delete(run.id);
    }
  }

  cancel({ id }: { readonly id: string }): void {
    this.#calls.get(id)?.cancel();
  }

  async mount({ session, files }: { readonly session: string; readonly files: readonly FileToMount[] }): Promise<void> {
    await this.#sessions.use(session, ({ folder }) => this.#options.folders.mount(folder, files));
  }

  async mountSkills({ session, skills }: Parameters<Tools["mountSkills"]>[0]): ReturnType<Tools["mountSkills"]> {
    // A session that is not open has no skills.
    if (skills.length === 0 && !this.#sessions.has(session)) return { folder: innerSkillsFolder };
    return await this.#sessions.use(session, async ({ folder }) => {
      await folder.skills.set(skills);
      return { folder: folder.skills.pathFor(this.#options.sandbox.isolation) };
    });
  }

  async closeSession({ session }: { readonly session: string }): Promise<void> {
    await this.#sessions.close(session);
  }

  async close(): Promise<void> {
    for (const call of this.#calls.values()) call.cancel();
    await this.#sessions.closeAll();
    await this.#options.sandbox.close();
    await this.#options.folders.removeAll();
  }

  async #runIn(session: ToolSession, run: ToolRun, parsed: ParsedCall, call: RunningCall): Promise<ToolOutcome> {
    const { codeTimeoutMs, shellTimeoutMs } = this.#options;
    switch (parsed.tool) {
      case "execute_python": {
        const { code, outputs = [] } = parsed.args;
        const cell = async (): Promise<ToolOutcome> => {
          if (call.isCancelled) return cancelledOutcome();
          const before = await filesOf(session.folder);
          const runCell = () => session.runCell(code, codeTimeoutMs, call);
          const ran = await this.#sessions.withInterpreter(session, runCell);
          return cellOutcome({ ...ran, code }, await this.#produced(session, run, before, outputs, call));
        };
        return await session.inTurn(() => this.#cells.pass(cell, run.client));
      }
      case "reset_python_session": {
        const wasRunning = await session.inTurn(() => session.reset());
        const message = wasRunning ? "the interpreter was restarted" : "no interpreter was running";
        return plainOutcome({ status: "success", message }, noFiles);
      }
      case "shell": {
        const { commands, outputs = [], timeout_ms: commandMs = shellTimeoutMs, max_output_length } = parsed.args;
        const limits = { callMs: shellTimeoutMs, commandMs };
        const work = async (): Promise<ToolOutcome> => {
          if (call.isCancelled) return cancelledOutcome();
          const before = await filesOf(session.folder);
          const ran = await session.runCommands(commands, limits, call);
          const produced = await this.#produced(session, run, before, outputs, call);
          return commandsOutcome({ ...ran, commands, maxOutput: max_output_length ?? null }, produced);
        };
        return await this.#commands.pass(work, run.client);
      }
      case "surface_outputs": {
        const before = await filesOf(session.folder);
        return plainOutcome(
          { status: "success" },
          await this.#produced(session, run, before, parsed.args.outputs, call),
        );
      }
    }
  }

  async #produced(
    { folder }: ToolSession,
    { session, client, run, round, turn, tool, expected }: ToolRun,
    before: Snapshot,
    named: readonly { readonly name: string; readonly format?: string | undefined }[],
    call: RunningCall,
  ): Promise<Produced> {
    return await outputsOf({
      folder,
      before,
      named,
      expected,
      stagingFolder: this.#options.stagingFolder,
      common: { source: { tool: `service_${tool}`, round, turn }, session, client },
      run,
      isCancelled: () => call.isCancelled,
    });
  }
}

type ParsedCall = {
  [T in ToolRun["tool"]]: { readonly tool: T; readonly args: z.output<(typeof toolArguments)[T]> };
}[ToolRun["tool"]];

/** Parses the arguments, which the model wrote. */
function argumentsOf({ tool, arguments: text }: ToolRun): ParsedCall | { readonly error: string } {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    return { error: `expected a JSON object as arguments of ${tool}, got other text` };
  }
  const parsed = toolArguments[tool].safeParse(value);
  if (parsed.success) return { tool, args: parsed.data } as ParsedCall;
  return { error: `invalid arguments of ${tool}: ${z.prettifyError(parsed.error)}` };
}
