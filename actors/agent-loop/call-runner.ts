// Call runner: runs the calls of one round in parallel. With the permission "ask", each call first waits for the user's approval.
import type { ToolCall } from "../../engines/generation.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import { jsonOrText } from "../../runtime/json-or-text.ts";
import type { AgentEvent, ApprovalRequest, Permission, ToolCallRecord, ToolType } from "../api/agent/agents.ts";
import type { StoredFile } from "../api/agent/files.ts";
import type { AskUser, ToolAnswer } from "../api/agent/questions.ts";
import type { Approvals, Verdict } from "./approvals.ts";
import { type ProducedFiles, withFiles } from "./files/produced-files.ts";
import { missingTool } from "./tools/custom-tools.ts";
import {
  type CallContext,
  type CallOutcome,
  outcomeOfDenial,
  outcomeOfError,
  type RunnableTool,
} from "./tools/runnable-tool.ts";
import type { Toolbox } from "./tools/toolbox.ts";

/** Maximum number of characters of user-edited arguments that are shown to the model. */
const MAX_EDITED = 12_000;

/** Context that all calls of one round share. */
export interface RunContext extends Omit<CallContext, "round" | "onProgress" | "ask"> {
  readonly permission: Permission;
  /** Whether the user receives the events of the run, so that tools can ask the user questions. */
  readonly canAsk: boolean;
  readonly emit: (event: AgentEvent) => void;
  /** Whether the user approved all further actions of the session in an earlier round. */
  readonly approvesAll: boolean;
  /** Called when the user approves all further actions of the session. */
  readonly onApprovesAll: () => Promise<void>;
  /** Stores the files that the run's calls produce. */
  readonly produced: ProducedFiles;
  readonly toolbox: Toolbox;
  /** Called when the call's result is known, before its `complete` event. */
  readonly onResult: (result: CallResult) => Promise<void>;
}

export interface CallResult {
  readonly call: ToolCall;
  readonly content: string;
  readonly images: readonly string[];
}

/** The server tool that a call names. */
interface CalledTool extends RunnableTool {
  /** Index of the call in its round, counted from 0. */
  readonly index: number;
}

export class CallRunner {
  readonly #approvals: Approvals;
  readonly #context: RunContext;
  readonly #round: number;

  constructor(approvals: Approvals, context: RunContext, round: number) {
    this.#approvals = approvals;
    this.#context = context;
    this.#round = round;
  }

  /** Runs all calls of a round in parallel. Returns their results in the order of the calls. Rejects if the run cannot continue. */
  async runAll(calls: readonly ToolCall[]): Promise<readonly CallResult[]> {
    const { permission, approvesAll } = this.#context;
    const asked = calls.map((call, index) => {
      const tool = { ...this.#tool(call), index };
      const asks = permission === "ask" && !approvesAll;
      return { call, tool, approval: asks ? this.#ask(call, tool) : null };
    });
    return await Promise.all(asked.map(({ call, tool, approval }) => this.#run(call, tool, approval)));
  }

  #ask({ arguments: text }: ToolCall, { about }: CalledTool): ApprovalRequest {
    const request = this.#approvals.open({
      session_id: this.#context.session,
      round: this.#round,
      tool: about,
      arguments: jsonOrText(text),
    });
    this.#context.emit({ type: "approval", request });
    return request;
  }

  async #run(call: ToolCall, tool: CalledTool, approval: ApprovalRequest | null): Promise<CallResult> {
    const verdict = await this.#verdict(tool, approval);
    if (!verdict.isApproved) return await this.#end(call, tool, outcomeOfDenial(verdict.denial), []);
    if (verdict.remembers) await this.#context.onApprovesAll();
    if (verdict.arguments === null) return await this.#runApproved(call, tool);
    return await this.#runApproved({ ...call, arguments: verdict.arguments }, tool, verdict.arguments);
  }

  /** Runs a call. `edited`: the user's edited arguments, which replace the model's; null = not edited. */
  async #runApproved(call: ToolCall, tool: CalledTool, edited: string | null = null): Promise<CallResult> {
    this.#progress(call, tool, "calling", callingData(tool.type, call), null);
    const context = this.#callContext(call, tool);
    const ran = await tool.run(call, context).catch((error) => outcomeOfError(call, toErrorRecord(error)));
    const { produced, emit } = this.#context;
    const files = await produced.store(ran.files, this.#round, (file, inline) => emit({ type: "file", file, inline }));
    const result = ran.files.length === 0 ? ran.content : withFiles(jsonOrText(ran.content), files);
    const content = edited === null ? result : editNote(edited) + result;
    return await this.#end(call, tool, { ...ran, content }, files.stored);
  }

  async #verdict({ about }: CalledTool, approval: ApprovalRequest | null): Promise<Verdict> {
    if (this.#context.permission === "deny") {
      return { isApproved: false, denial: `${about.label} was denied by policy.`, isDecision: false };
    }
    if (approval === null) return { isApproved: true, remembers: false, content: {}, arguments: null };
    return await this.#decision(approval, this.#context.signal);
  }

  async #decision(approval: ApprovalRequest, signal: AbortSignal): Promise<Verdict> {
    // Lets the event loop send the approval event before the wait begins. The client may decide as soon as it reads the event.
    await new Promise<void>((resolve) => setImmediate(resolve));
    return await this.#approvals.wait(approval, signal);
  }

  /** Returns a function that asks the user for data: it sends the question as an approval request, and the decision contains the data. */
  #asker({ about }: CalledTool): AskUser | null {
    const { canAsk, permission, session, emit, signal } = this.#context;
    if (!canAsk || permission === "deny") return null;
    return async ({ label, message, schema }, ended) => {
      const tool = { source: about.source, kind: "external", label } as const;
      const args = { message, requested_schema: { type: "object", ...schema } };
      const request = this.#approvals.open({ session_id: session, round: this.#round, tool, arguments: args }, schema);
      emit({ type: "approval", request });
      return answerOf(await this.#decision(request, AbortSignal.any([signal, ended])));
    };
  }

  async #end(call: ToolCall, tool: CalledTool, ran: CallOutcome, files: readonly StoredFile[]): Promise<CallResult> {
    const { content, status } = ran;
    const record: ToolCallRecord = {
      round: this.#round,
      name: call.name,
      arguments: call.arguments,
      result_content: content,
      ...(ran.images.length === 0 ? {} : { result_images_base64: ran.images }),
      ...(files.length === 0 ? {} : { file_ids: files.map(({ id }) => id) }),
    };
    const result = { call, content, images: ran.images };
    await this.#context.onResult(result);
    const ending = status === "success" ? {} : { status };
    this.#progress(call, tool, "complete", { ...ran.data, ...ending, ...media(ran) }, record);
    return result;
  }

  #progress(
    call: ToolCall,
    { type, server, index }: CalledTool,
    phase: "calling" | "complete",
    data: Readonly<Record<string, unknown>>,
    record: ToolCallRecord | null,
  ): void {
    this.#context.emit({
      type: "tool_progress",
      phase,
      round: this.#round,
      index,
      call: { id: call.id, name: call.name, arguments: call.arguments },
      toolType: type,
      server,
      data: { tool_type: type, ...data },
      record,
    });
  }

  #tool({ name }: ToolCall): RunnableTool {
    return this.#context.toolbox.find(name) ?? missingTool(name);
  }

  #callContext(call: ToolCall, tool: CalledTool): CallContext {
    const { run, session, client, turn, signal } = this.#context;
    const onProgress: CallContext["onProgress"] = (progress) =>
      this.#progress(call, tool, "calling", { ...callingData(tool.type, call), ...progress }, null);
    return { run, round: this.#round, session, client, turn, signal, onProgress, ask: this.#asker(tool) };
  }
}

function answerOf(verdict: Verdict): ToolAnswer {
  if (verdict.isApproved) return { action: "accept", content: verdict.content };
  return { action: verdict.isDecision ? "decline" : "cancel" };
}

/** Returns the note before the result of an edited call. It tells the model which arguments were used. */
function editNote(edited: string): string {
  const shown = edited.length > MAX_EDITED ? `${edited.slice(0, MAX_EDITED)} (cut)` : edited;
  return `The user edited this call before it ran. It ran with these arguments instead of yours: ${shown}\nIts result: `;
}

/** Returns the fields of the progress event for a call that is about to run. */
function callingData(type: ToolType, call: ToolCall): Readonly<Record<string, unknown>> {
  const args = jsonOrText(call.arguments);
  const fields = typeof args === "object" && args !== null ? (args as Readonly<Record<string, unknown>>) : {};
  if (type === "code_execution") return { code: fields.code ?? null };
  if (type === "shell") return { commands: fields.commands ?? [] };
  if (type === "web_search") return { ...fields };
  return { arguments: args };
}

function media({ images, videoFrames }: CallOutcome): Readonly<Record<string, unknown>> {
  return {
    ...(images.length === 0 ? {} : { images_base64: images }),
    ...(videoFrames.length === 0 ? {} : { video_frames_base64: videoFrames, video_frame_count: videoFrames.length }),
  };
}
