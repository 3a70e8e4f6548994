// Tools client: the main thread's client of the tools process. Starts the process, and restarts it whenever it ends. When it ends,
// its child processes end and its running calls fail. It is a process of its own and not a thread, because a command is started by a
// fork, which copies the page tables: in a server of 1 GiB it takes 30 ms, in which all threads of the server wait for memory.
import { tmpdir } from "node:os";
import type { Ref } from "../../runtime/actor/ref.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../../runtime/actor/supervision.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { createProcessFolder } from "../../runtime/host/process-folder.ts";
import { removeFolder } from "../../runtime/host/remove-folder.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { IsolationReport } from "../../runtime/sandbox/sandbox.ts";
import { type Place, spawnPlace } from "../../runtime/thread/place.ts";
import type { FileToMount, ToolOutcome, ToolRun, Tools } from "../api/agent/tools.ts";
import type { ToolsPlaceInit, ToolsProcessInit } from "../messages.ts";
import { toolsModule } from "../placement.ts";

const startTimeoutMs = 30_000;
/** Milliseconds in addition to a tool's own time limit, to copy files and end processes. */
const marginMs = 60_000;
/** Maximum number of earlier calls for which a call may have to wait: the maximum number of calls of one round. */
const waitingCalls = 64;
const maxTimerMs = 2 ** 31 - 1;
const restartPolicy: RestartPolicy = {
  kind: "restart",
  minBackoffMs: 500,
  maxBackoffMs: 30_000,
  resetAfterMs: 60_000,
  maxRestarts: Number.POSITIVE_INFINITY,
};

export interface ToolsClientOptions {
  readonly init: ToolsPlaceInit;
  readonly log: Logger;
}

export class ToolsClient implements Tools {
  readonly #options: ToolsClientOptions;
  readonly #system = new ActorSystem("front");
  #supervisor: Supervisor | null = null;
  #tools: Ref<Tools> | null = null;
  #folder: string | null = null;

  constructor(options: ToolsClientOptions) {
    this.#options = options;
  }

  /** Starts the process. Rejects with config_invalid if the sandbox or the interpreter cannot be used. */
  async start(): Promise<void> {
    const { log, init } = this.#options;
    const { workFolder, ...settings } = init;
    // Created here and not in the tools process, so that the folder is removed even if that process is killed.
    const folder = createProcessFolder("tools", [workFolder ?? tmpdir()]);
    this.#folder = folder;
    let wasUp = false;
    await new Promise<void>((resolve, reject) => {
      this.#supervisor = supervise<IsolationReport>({
        name: "tools",
        start: (signal) => this.#spawn({ ...settings, folder }, signal, wasUp),
        policy: restartPolicy,
        onUp: (place) => {
          this.#tools = this.#system.ref<Tools>("tools", place.endpoint);
          if (!wasUp)
            log.info({ isolation: place.ready.kind, missing: place.ready.missing }, "tools of the server are ready");
          wasUp = true;
          resolve();
        },
        onDown: (exit, next) => {
          this.#tools = null;
          if (exit.orderly || !wasUp) return;
          log.error(
            { reason: exit.reason, retryInMs: next?.retryInMs },
            "the tools place ended; its running calls failed",
          );
        },
        onEscalate: reject,
      });
    });
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#supervisor?.stop(deadlineMs);
    await this.#system.stop();
    if (this.#folder === null) return;
    await removeFolder(this.#folder).catch((error: unknown) => {
      this.#options.log.warn({ reason: String(error) }, "the folder of the tools could not be removed");
    });
  }

  async run(call: ToolRun): Promise<ToolOutcome> {
    const { codeTimeoutMs, shellTimeoutMs } = this.#options.init;
    // A Python call waits for earlier Python calls of its session. Every call waits while too many calls are running.
    const timeoutMs = Math.min(waitingCalls * Math.max(codeTimeoutMs, shellTimeoutMs) + marginMs, maxTimerMs);
    return await this.#actor().ask("run", call, { timeoutMs });
  }

  cancel(message: { readonly id: string }): void {
    this.#tools?.tell("cancel", message);
  }

  async mount(message: { readonly session: string; readonly files: readonly FileToMount[] }): Promise<void> {
    await this.#actor().ask("mount", message);
  }

  async mountSkills(message: Parameters<Tools["mountSkills"]>[0]): ReturnType<Tools["mountSkills"]> {
    return await this.#actor().ask("mountSkills", message);
  }

  async closeSession(message: { readonly session: string }): Promise<void> {
    await this.#actor().ask("closeSession", message);
  }

  async #spawn(init: ToolsProcessInit, signal: AbortSignal, isRestart: boolean): Promise<Place<IsolationReport>> {
    const { log } = this.#options;
    const onProgress = (told: unknown): void => {
      const { fields, message } = told as { readonly fields: object; readonly message: string };
      log.warn(fields, message);
    };
    const place = { name: "tools", module: toolsModule, init, kind: "process", startTimeoutMs } as const;
    try {
      return await spawnPlace({ ...place, signal, onProgress });
    } catch (thrown) {
      const { code, message } = toErrorRecord(thrown);
      // The supervisor retries a failed start only if its error is retryable, as peer_gone is. A failed restart must be retried, but
      // not a failed first start.
      throw new ServerError(isRestart ? "peer_gone" : code === "config_invalid" ? code : "internal", message);
    }
  }

  #actor(): Ref<Tools> {
    if (this.#tools !== null) return this.#tools;
    throw new ServerError("peer_gone", "the tools of the server cannot be reached now; try again soon");
  }
}
