// Calls of one MCP server: limits how many run concurrently, ends them at their time limit, and forwards the server's questions
// to the users of running calls.
import type { ElicitRequestFormParams, ElicitResult, ProgressCallback } from "@modelcontextprotocol/client";
import type { Clock } from "../../runtime/clock.ts";
import { ServerError } from "../../runtime/errors.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { McpCall, McpReport, McpServerSettings } from "../api/agent/mcp.ts";
import type { ServerToolResult } from "../api/agent/server-tools.ts";
import { failedResult } from "../tools/failures.ts";
import { CallTimer } from "./call-timer.ts";
import { type McpSession, messageOf } from "./mcp-session.ts";
import type { Questions } from "./questions.ts";
import { runTool } from "./server-tools.ts";

/** Minimum time in ms between two progress reports of a call. Reports in between are dropped. */
const PROGRESS_MS = 100;
/** Maximum number of questions that a call may ask its user. */
const MAX_QUESTIONS = 16;
/** Maximum number of characters of a server's message in errors, logs and progress reports. */
const MAX_SHOWN = 2000;
/** Maximum number of running and queued calls per server. */
const MAX_CALLS = 1024;

export interface ServerCallsOptions {
  readonly settings: McpServerSettings;
  readonly maxConcurrentCalls: number;
  readonly clock: Clock;
  readonly questions: Questions;
  readonly report: (report: McpReport) => void;
  /** Returns the current session with the server. Throws peer_gone if there is no session. */
  readonly mcpSession: () => McpSession;
}

interface ActiveCall {
  readonly call: McpCall;
  readonly end: AbortController;
  /** Timer of the running call; null = the call is queued. */
  timer: CallTimer | null;
  hasTimedOut: boolean;
  /** Number of questions asked so far. */
  questions: number;
}

export class ServerCalls {
  readonly #options: ServerCallsOptions;
  readonly #gate: Gate;
  readonly #running = new Map<string, ActiveCall>();

  constructor(options: ServerCallsOptions) {
    this.#options = options;
    this.#gate = new Gate(options.maxConcurrentCalls);
  }

  get size(): number {
    return this.#running.size;
  }

  /** Runs a call; see McpCalls.call. */
  async call(call: McpCall): Promise<ServerToolResult> {
    const mcpSession = this.#options.mcpSession();
    if (this.#running.size >= MAX_CALLS) throw new ServerError("queue_full", `${this.#who} has too many waiting calls`);
    const running: ActiveCall = { call, end: new AbortController(), timer: null, hasTimedOut: false, questions: 0 };
    this.#running.set(call.id, running);
    try {
      const ended = rejectsWhenAborted(running.end.signal);
      return await Promise.race([this.#gate.pass(() => this.#run(running), call.client), ended]);
    } catch (error) {
      if (running.hasTimedOut) return failedResult("timeout", messageOf(error));
      throw error;
    } finally {
      running.timer?.stop();
      this.#running.delete(call.id);
      // Also ends the questions of the call.
      running.end.abort();
      if (running.hasTimedOut) void mcpSession.check();
    }
  }

  cancel(id: string): void {
    this.#running.get(id)?.end.abort(new ServerError("cancelled", "the call was cancelled"));
  }

  /** Ends all calls with an error. */
  endAll(error: ServerError): void {
    for (const { end } of this.#running.values()) end.abort(error);
  }

  /**
   * Asks the user of the running call. If calls of several sessions are running, it is unknown which of them asks. The question
   * is then declined, because another user must not see it.
   */
  async elicit(params: ElicitRequestFormParams, signal: AbortSignal): Promise<ElicitResult> {
    const running = [...this.#running.values()].filter(({ timer }) => timer !== null);
    const sessions = new Set(running.map(({ call }) => call.session));
    const asking = sessions.size === 1 ? running.find(({ call }) => call.canAsk) : undefined;
    if (asking === undefined) return this.#declined(sessions.size);
    // The number of questions is limited, because the time limit of a call is paused while it asks.
    if (++asking.questions > MAX_QUESTIONS) return { action: "decline" };
    const { questions, settings } = this.#options;
    for (const { timer } of running) timer?.pause();
    try {
      return await questions.ask(asking.call.id, settings.name, params, AbortSignal.any([signal, asking.end.signal]));
    } finally {
      for (const { call, timer } of running) if (this.#running.has(call.id)) timer?.resume();
    }
  }

  #declined(sessions: number): ElicitResult {
    const { report, settings } = this.#options;
    const reason = sessions > 1 ? "calls of several sessions run" : "no call runs whose user can be asked";
    const fields = { server: settings.name, reason };
    report({ type: "log", level: "debug", fields, message: "a question of an MCP server was declined" });
    return { action: "decline" };
  }

  async #run(running: ActiveCall): Promise<ServerToolResult> {
    const { call, end } = running;
    const { settings, clock, mcpSession } = this.#options;
    end.signal.throwIfAborted();
    const current = mcpSession();
    running.timer = new CallTimer(clock, settings.callTimeoutMs, () => {
      running.hasTimedOut = true;
      end.abort(this.#timeout());
    });
    const options = { signal: end.signal, onprogress: this.#onProgress(running) };
    try {
      return await runTool(current, call, settings.resources, options);
    } catch (error) {
      end.signal.throwIfAborted();
      if (current.endReason !== null) throw goneError(settings, current.endReason);
      return failedResult("error", redacted(messageOf(error), settings.secrets));
    }
  }

  #onProgress({ call, timer }: ActiveCall): ProgressCallback {
    const { clock, report } = this.#options;
    let reportedAt = Number.NEGATIVE_INFINITY;
    return ({ progress, total = null, message = null }) => {
      timer?.onProgress();
      if (clock.now() - reportedAt < PROGRESS_MS) return;
      reportedAt = clock.now();
      const shown = message?.slice(0, MAX_SHOWN) ?? null;
      report({ type: "progress", call: call.id, progress: { progress, total, message: shown } });
    };
  }

  get #who(): string {
    return `MCP server "${this.#options.settings.name}"`;
  }

  #timeout(): ServerError {
    const seconds = this.#options.settings.callTimeoutMs / 1000;
    return new ServerError("timeout", `${this.#who} did not answer the call within ${seconds} s (tool_timeout_secs)`);
  }
}

export function goneError({ name, secrets }: McpServerSettings, reason: string): ServerError {
  return new ServerError("peer_gone", `MCP server "${name}" cannot be reached: ${redacted(reason, secrets)}`);
}

/** Returns the beginning of a text, with the server's secrets removed. */
export function redacted(text: string, secrets: readonly string[]): string {
  const whole = secrets.reduce((kept, secret) => kept.replaceAll(secret, "[redacted]"), text);
  return whole.length <= MAX_SHOWN ? whole : `${whole.slice(0, MAX_SHOWN)}…`;
}

function rejectsWhenAborted(signal: AbortSignal): Promise<never> {
  return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason), { once: true }));
}
