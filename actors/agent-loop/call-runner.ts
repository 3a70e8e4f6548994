import type { ToolCall } from "../../engines/generation.ts";
import { toErrorRecord } from "../../runtime/errors.ts";
import type {
  AgentEvent,
  ApprovalRequest,
  Permission,
  RequestedFile,
  ToolCallRecord,
  ToolGroup,
  ToolType,
} from "../api/agent/agents.ts";
import type { Files, StoredFile } from "../api/agent/files.ts";
import type { ToolOutcome, Tools } from "../api/agent/tools.ts";
import { type BuiltInTool, builtInNamed } from "../tools/schemas.ts";
import type { Approvals, Verdict } from "./approvals.ts";
import type { Dispatch } from "./dispatch.ts";
import { listFiles, readFileText } from "./files/file-tools.ts";
import { type ProducedFiles, withFiles } from "./files/produced-files.ts";

/** Data that all calls of one round share. */
export interface RunContext {
  readonly run: string;
  readonly session: string;
  readonly client: string;
  /** Number of the request in its session, counted from 0. */
  readonly turn: number;
  readonly permission: Permission;
  readonly requestedFiles: readonly RequestedFile[];
  readonly signal: AbortSignal;
  readonly emit: (event: AgentEvent) => void;
  /** Whether the user has approved all further actions of the session. */
  readonly approvals: { all: boolean };
  /** Files of the run. */
  readonly produced: ProducedFiles;
  /** Tools of these groups run on the server. */
  readonly groups: readonly ToolGroup[];
  /** Called when the call's result is known, before its `complete` event. */
  readonly onResult: (result: CallResult) => Promise<void>;
}

export interface CallResult {
  readonly call: ToolCall;
  readonly content: string;
  readonly images: readonly string[];
}

export interface CallServices {
  readonly tools: Tools;
  readonly files: Files;
  readonly approvals: Approvals;
  /** null: no dispatch URL is configured. */
  readonly dispatch: Dispatch | null;
}

/** The server tool that a call names. */
interface CalledTool {
  /** Position of the call in its round. */
  readonly index: number;
  readonly type: ToolType;
  readonly about: ApprovalRequest["tool"];
  run(): Promise<Ran>;
}

type Ran = Pick<ToolOutcome, "content" | "data" | "images" | "videoFrames" | "files" | "status">;

export class CallRunner {
  readonly #services: CallServices;
  readonly #context: RunContext;
  readonly #round: number;

  constructor(services: CallServices, context: RunContext, round: number) {
    this.#services = services;
    this.#context = context;
    this.#round = round;
  }

  /**
   * Runs all calls of a round in parallel. Returns their results in the order of the calls. Rejects if the run cannot continue.
   */
  async runAll(calls: readonly ToolCall[]): Promise<readonly CallResult[]> {
    const { permission, approvals } = this.#context;
    const asked = calls.map((call, index) => {
      const tool = this.#tool(call, index);
      const asks = permission === "ask" && !approvals.all;
      return { call, tool, approval: asks ? this.#ask(call, tool) : null };
    });
    return await Promise.all(asked.map(({ call, tool, approval }) => this.#run(call, tool, approval)));
  }

  #ask({ arguments: text }: ToolCall, { about }: CalledTool): ApprovalRequest {
    const request = this.#services.approvals.open({
      session_id: this.#context.session,
      round: this.#round,
      tool: about,
      arguments: parsed(text),
    });
    this.#context.emit({ type: "approval", request });
    return request;
  }

  async #run(call: ToolCall, tool: CalledTool, approval: ApprovalRequest | null): Promise<CallResult> {
    const verdict = await this.#verdict(tool, approval);
    if (!verdict.isApproved) return await this.#end(call, tool, denied(verdict.denial), []);
    if (verdict.remembers) this.#context.approvals.all = true;
    this.#progress(call, tool, "calling", callingData(tool.type, parsed(call.arguments)), null);
    const ran = await tool.run();
    const { produced, emit } = this.#context;
    const files = await produced.store(ran.files, this.#round, (file, inline) => emit({ type: "file", file, inline }));
    const content = ran.files.length === 0 ? ran.content : withFiles(parsed(ran.content), files);
    return await this.#end(call, tool, { ...ran, content }, files.stored);
  }

  async #verdict({ about }: CalledTool, approval: ApprovalRequest | null): Promise<Verdict> {
    if (this.#context.permission === "deny") {
      return { isApproved: false, denial: `${about.label} was denied by policy.` };
    }
    if (approval === null) return { isApproved: true, remembers: false };
    // The event is passed on first, because the client may decide as soon as it has read the event.
    await new Promise<void>((resolve) => setImmediate(resolve));
    return await this.#services.approvals.wait(approval, this.#context.signal);
  }

  async #end(call: ToolCall, tool: CalledTool, ran: Ran, files: readonly StoredFile[]): Promise<CallResult> {
    const { content } = ran;
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
    this.#progress(call, tool, "complete", { ...ran.data, ...media(ran) }, record);
    return result;
  }

  #progress(
    call: ToolCall,
    { type, index }: CalledTool,
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
      data: { tool_type: type, ...data },
      record,
    });
  }

  #tool(call: ToolCall, index: number): CalledTool {
    const built = builtInNamed(call.name, this.#context.groups);
    if (built === undefined) return this.#customTool(call, index);
    const { type, kind, label } = built;
    return { index, type, about: { source: "built_in", kind, label }, run: () => this.#runBuiltIn(call, built) };
  }

  #customTool(call: ToolCall, index: number): CalledTool {
    const { dispatch } = this.#services;
    return {
      index,
      type: "custom",
      about: { source: "user", kind: "custom", label: call.name },
      run: async () => {
        const content =
          dispatch === null ? notRun(call.name) : await dispatch(call, this.#key(call), this.#context.signal);
        return { ...nothingMade, status: "success", content, data: { arguments: parsed(call.arguments), content } };
      },
    };
  }

  /** Identifies the call among those of all runs. */
  #key({ id }: ToolCall): string {
    return `${this.#context.run}/${this.#round}/${id}`;
  }

  async #runBuiltIn(call: ToolCall, { name, sandboxed }: BuiltInTool): Promise<Ran> {
    const { files, tools } = this.#services;
    const { session, client, run, turn, requestedFiles, signal } = this.#context;
    if (sandboxed === null) {
      const text = name === "list_files" ? await listFiles(files, session) : await readFileText(files, call.arguments);
      return {
        ...nothingMade,
        status: "success",
        content: text,
        data: { arguments: parsed(call.arguments), content: text },
      };
    }
    const id = this.#key(call);
    const cancel = (): void => tools.cancel({ id });
    signal.addEventListener("abort", cancel, { once: true });
    try {
      return await tools.run({
        id,
        session,
        client,
        run,
        round: this.#round,
        turn,
        tool: sandboxed,
        arguments: call.arguments,
        expected: requestedFiles.map(({ name: expected, format }) => ({ name: expected, format })),
      });
    } catch (error) {
      // The tools thread has ended, or rejects the call. The model gets the error as the result, and the run continues.
      const { message } = toErrorRecord(error);
      const content = JSON.stringify({ status: "error", exception: message });
      return { ...nothingMade, status: "error", content, data: { exception: message } };
    } finally {
      signal.removeEventListener("abort", cancel);
    }
  }
}

const nothingMade = { images: [], videoFrames: [], files: [] } as const;

function denied(message: string): Ran {
  return { ...nothingMade, status: "error", content: message, data: { status: "denied", content: message } };
}

function notRun(name: string): string {
  return JSON.stringify({ error: "no tool of this name runs on the server", tool: name, status: "failed" });
}

/** Parses the arguments of a call. Arguments that are not JSON stay text. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

/** Returns the fields of the progress event for a call that is about to run. */
function callingData(type: ToolType, args: unknown): Readonly<Record<string, unknown>> {
  const fields = typeof args === "object" && args !== null ? (args as Readonly<Record<string, unknown>>) : {};
  if (type === "code_execution") return { code: fields.code ?? null };
  if (type === "shell") return { commands: fields.commands ?? [] };
  return { arguments: args };
}

function media({ images, videoFrames }: Ran): Readonly<Record<string, unknown>> {
  return {
    ...(images.length === 0 ? {} : { images_base64: images }),
    ...(videoFrames.length === 0 ? {} : { video_frames_base64: videoFrames, video_frame_count: videoFrames.length }),
  };
}
