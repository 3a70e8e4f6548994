// MCP client: the main thread's client of the MCP thread. Starts the thread, restarts it whenever it ends, and keeps the list of
// the connected servers' tools.
import { tmpdir } from "node:os";
import type { Ref } from "../../runtime/actor/ref.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../../runtime/actor/supervision.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { createProcessFolder } from "../../runtime/host/process-folder.ts";
import { removeFolder } from "../../runtime/host/remove-folder.ts";
import type { Logger } from "../../runtime/log/log.ts";
import { type Place, spawnPlace } from "../../runtime/thread/place.ts";
import type { McpCalls, McpPlaceInit, McpReport, McpThreadInit, McpTool } from "../api/agent/mcp.ts";
import type { ServerTool, ServerToolCall, ServerToolResult, ToolSource } from "../api/agent/server-tools.ts";
import { mcpModule } from "../placement.ts";

const startTimeoutMs = 30_000;
/** Milliseconds without a response after which the MCP thread is restarted. */
const answersWithinMs = 30_000;
/** Heap limit of the MCP thread in MiB. Large, because the thread may hold messages of many servers at the same time. */
const heapMiB = 1024;
/** Longest possible timeout in ms. The MCP thread itself limits the time of calls, so no shorter timeout is needed here. */
const maxTimerMs = 2 ** 31 - 1;
const restartPolicy: RestartPolicy = {
  kind: "restart",
  minBackoffMs: 500,
  maxBackoffMs: 30_000,
  resetAfterMs: 60_000,
  maxRestarts: Number.POSITIVE_INFINITY,
};

export interface McpClientOptions {
  readonly init: McpPlaceInit;
  readonly log: Logger;
}

/** A running call. `ended` is aborted when the call ends, which also ends the call's questions to the user. */
interface RunningCall {
  readonly call: ServerToolCall;
  readonly ended: AbortController;
}

export class McpClient implements ToolSource {
  readonly #options: McpClientOptions;
  readonly #system = new ActorSystem("front");
  readonly #running = new Map<string, RunningCall>();
  #supervisor: Supervisor | null = null;
  #mcp: Ref<McpCalls> | null = null;
  #tools: readonly ServerTool[] = [];
  #connected = 0;
  #folder: string | null = null;

  constructor(options: McpClientOptions) {
    this.#options = options;
  }

  tools(): readonly ServerTool[] {
    return this.#tools;
  }

  get connected(): number {
    return this.#connected;
  }

  /** Starts the MCP thread; it connects to the servers later. Rejects with config_invalid if the sandbox cannot be used. */
  async start(): Promise<void> {
    const { log, init } = this.#options;
    // Created here and not in the MCP thread, so that the folder is removed even if that thread is terminated.
    const folder = createProcessFolder("mcp", [tmpdir()]);
    this.#folder = folder;
    let wasUp = false;
    await new Promise<void>((resolve, reject) => {
      this.#supervisor = supervise<null>({
        name: "mcp",
        start: (signal) => this.#spawn({ ...init, folder }, signal, wasUp),
        policy: restartPolicy,
        onUp: (place) => {
          this.#mcp = this.#system.ref<McpCalls>("mcp", place.endpoint);
          wasUp = true;
          resolve();
        },
        onDown: (exit, next) => {
          this.#mcp = null;
          this.#setTools([], 0);
          if (exit.orderly || !wasUp) return;
          log.error(
            { reason: exit.reason, retryInMs: next?.retryInMs },
            "the MCP place ended; its running calls failed",
          );
        },
        onEscalate: reject,
      });
    });
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#supervisor?.stop(deadlineMs);
    await this.#system.stop();
    if (this.#folder !== null) await removeFolder(this.#folder).catch(() => {});
  }

  async #spawn(init: McpThreadInit, signal: AbortSignal, isRestart: boolean): Promise<Place<null>> {
    const onProgress = (report: unknown): void => this.#onReport(report as McpReport);
    const place = {
      name: "mcp",
      module: mcpModule,
      init,
      kind: "thread",
      startTimeoutMs,
      answersWithinMs,
      heapMiB,
    } as const;
    try {
      return await spawnPlace({ ...place, signal, onProgress });
    } catch (thrown) {
      const { code, message } = toErrorRecord(thrown);
      // The supervisor retries a failed start only if its error is retryable, as peer_gone is. A failed restart must be retried, but
      // not a failed first start.
      throw new ServerError(isRestart ? "peer_gone" : code === "config_invalid" ? code : "internal", message);
    }
  }

  #onReport(report: McpReport): void {
    switch (report.type) {
      case "tools":
        this.#setTools(report.tools, report.connected);
        break;
      case "progress":
        this.#running.get(report.call)?.call.onProgress(report.progress);
        break;
      case "question":
        void this.#ask(report);
        break;
      case "log":
        this.#options.log[report.level](report.fields, report.message);
    }
  }

  #setTools(tools: readonly McpTool[], connected: number): void {
    this.#connected = connected;
    this.#tools = tools.map((tool) => ({
      spec: tool.spec,
      server: tool.serverName,
      about: { source: "mcp", kind: "external", label: `${tool.serverName}: ${tool.tool}` },
      run: (call) => this.#run(tool, call),
    }));
  }

  async #run({ server, action, tool }: McpTool, call: ServerToolCall): Promise<ServerToolResult> {
    const mcp = this.#mcp;
    if (mcp === null) throw new ServerError("peer_gone", "the MCP servers cannot be reached now; try again soon");
    const { id, arguments: text, session, client, signal, ask } = call;
    signal.throwIfAborted();
    const cancel = (): void => mcp.tell("cancel", { id });
    const ended = new AbortController();
    this.#running.set(id, { call, ended });
    signal.addEventListener("abort", cancel, { once: true });
    try {
      const message = { id, server, action, tool, arguments: text, session, client, canAsk: ask !== null };
      return await mcp.ask("call", message, { timeoutMs: maxTimerMs });
    } finally {
      signal.removeEventListener("abort", cancel);
      this.#running.delete(id);
      ended.abort();
    }
  }

  async #ask({ call: id, question, content }: McpReport & { readonly type: "question" }): Promise<void> {
    const { call, ended } = this.#running.get(id) ?? {};
    const ask = call?.ask ?? null;
    const answer =
      ask === null || ended === undefined ? { action: "cancel" as const } : await ask(content, ended.signal);
    this.#mcp?.tell("answer", { question, answer });
  }
}
