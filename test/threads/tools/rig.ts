// Tools rig: a tools process for tests, with helper methods that run its tools.
import { spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ToolOutcome, ToolRun } from "../../../actors/api/agent/tools.ts";
import { ToolsClient } from "../../../actors/front/tools-client.ts";
import type { ToolsPlaceInit } from "../../../actors/messages.ts";
import { createLogger } from "../../../runtime/log/log.ts";
import { toolsInit } from "../../fixtures/actors/agent-places.ts";

type Read = ToolOutcome & { readonly model: Record<string, unknown> };

export class ToolsRig {
  readonly base = mkdtempSync(join(tmpdir(), "troupe-tools-test-"));
  readonly stagingFolder = join(this.base, "staging");
  /** Parent of the thread's private folder. */
  readonly workFolder = join(this.base, "sessions");
  readonly client: ToolsClient;
  #count = 0;

  constructor(given: Partial<ToolsPlaceInit> & { readonly mode?: "on" | "off" } = {}) {
    for (const folder of [this.stagingFolder, this.workFolder]) mkdirSync(folder);
    const { mode = "on", ...changes } = given;
    const { workFolder, stagingFolder } = this;
    const init = toolsInit({ workFolder, stagingFolder }, { codeTimeoutMs: 2000, shellTimeoutMs: 3000, ...changes });
    this.client = new ToolsClient({
      log: createLogger({ level: "silent", format: "text" }),
      init: { ...init, sandbox: { ...init.sandbox, network: "loopback", mode } },
    });
  }

  async stop(): Promise<void> {
    await this.client.stop(5000);
  }

  dispose(): void {
    rmSync(this.base, { recursive: true, force: true });
  }

  readonly run = async (
    tool: ToolRun["tool"],
    args: object | string,
    session = "s",
    given: Partial<ToolRun> = {},
  ): Promise<ToolOutcome> => {
    return await this.client.run({
      id: `call-${this.#count++}`,
      session,
      client: "c",
      run: "run",
      round: 0,
      turn: 0,
      tool,
      arguments: typeof args === "string" ? args : JSON.stringify(args),
      expected: [],
      ...given,
    });
  };

  readonly python = async (code: string, session = "s", given: Partial<ToolRun> = {}): Promise<Read> =>
    read(await this.run("execute_python", { code }, session, given));

  readonly shell = async (commands: readonly string[], session = "s", more: object = {}): Promise<Read> =>
    read(await this.run("shell", { commands, ...more }, session));

  /** Returns the names of the session folders, including the one prepared for the next session. */
  folders(): readonly string[] {
    const [own] = readdirSync(this.workFolder).map((name) => join(this.workFolder, name));
    return own === undefined ? [] : readdirSync(own);
  }

  /** Returns the process id of the tools process. */
  toolsProcess(): number {
    const { stdout } = spawnSync("ps", ["-o", "pid=,args=", "-ww", "--ppid", String(process.pid)], {
      encoding: "utf8",
    });
    const pid = /^ *(\d+) .*entry-process\.js tools$/m.exec(stdout)?.[1];
    if (pid === undefined) throw new Error(`expected a tools process among\n${stdout}`);
    return Number(pid);
  }

  /** Returns the lines of the process list that contain the path of the work folder. */
  processes(): readonly string[] {
    const { stdout } = spawnSync("ps", ["-eo", "pid,stat,args", "-ww"], { encoding: "utf8" });
    return stdout.split("\n").filter((line) => line.includes(this.workFolder));
  }
}

function read(outcome: ToolOutcome): Read {
  return { ...outcome, model: JSON.parse(outcome.content) as Record<string, unknown> };
}
