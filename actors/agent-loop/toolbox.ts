// Toolbox: the tools that the server runs in one run, found by the names that the model uses.
import type { ToolCall } from "../../engines/generation.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { AgentOptions, ApprovalRequest, ToolType } from "../api/agent/agents.ts";
import type { Files } from "../api/agent/files.ts";
import type { AskUser } from "../api/agent/questions.ts";
import type { ServerTool, ToolProgress } from "../api/agent/server-tools.ts";
import type { ToolOutcome, Tools } from "../api/agent/tools.ts";
import type { FoundPage, PageText, Web } from "../api/agent/web.ts";
import { failureText } from "../tools/failures.ts";
import { type BuiltInTool, builtInNamed, toolArguments } from "../tools/schemas.ts";
import type { Dispatch } from "./dispatch.ts";
import { listFiles, readFileText } from "./files/file-tools.ts";

export interface ToolServices {
  readonly tools: Tools;
  readonly files: Files;
  /** null: web search is not enabled. */
  readonly web: Web | null;
  /** null: no dispatch URL is configured. */
  readonly dispatch: Dispatch | null;
}

/** Run, round, session and client to which a call belongs, and its connection to the user. */
export interface CallContext {
  readonly run: string;
  readonly round: number;
  readonly session: string;
  readonly client: string;
  /** Number of the request in its session, counted from 0. */
  readonly turn: number;
  readonly signal: AbortSignal;
  readonly onProgress: (progress: ToolProgress) => void;
  /** Asks the user; null: the user cannot be asked. */
  readonly ask: AskUser | null;
}

/** Result of a call. `denied`: the call was not run, because the user or the policy denied it. */
export interface Ran extends Omit<ToolOutcome, "status"> {
  readonly status: ToolOutcome["status"] | "denied";
}

/** A tool that the server runs. */
export interface RunnableTool {
  readonly type: ToolType;
  readonly about: ApprovalRequest["tool"];
  /** Label of the MCP server of the tool; null: the tool belongs to none. */
  readonly server: string | null;
  /** Rejects with the reason if the call fails. The model reads the reason, and the run continues. */
  run(call: ToolCall, context: CallContext): Promise<Ran>;
}

type Agent = Pick<AgentOptions, "groups" | "serverTools" | "requestedFiles" | "web" | "maxUses">;

export class Toolbox {
  readonly #services: ToolServices;
  readonly #agent: Agent;
  readonly #serverTools: ReadonlyMap<string, ServerTool>;
  /** Number of calls so far, by the name of the tool. Only tools with a limit are counted. */
  readonly #uses = new Map<string, number>();

  /** `serverTools`: the tools of all sources. The run has only the ones that its request names. */
  constructor(services: ToolServices, agent: Agent, serverTools: readonly ServerTool[]) {
    this.#services = services;
    this.#agent = agent;
    const offered = serverTools.filter(({ spec }) => agent.serverTools.includes(spec.name));
    // If two sources have a tool of the same name, the tool of the earlier source is used.
    this.#serverTools = new Map(offered.toReversed().map((tool) => [tool.spec.name, tool]));
  }

  /** Returns the tool of a name; null: the client runs it. */
  find(name: string): RunnableTool | null {
    const tool = this.#named(name);
    const { maxUses } = this.#agent;
    // Names come from the model, also names such as `constructor`.
    const most = Object.hasOwn(maxUses, name) ? maxUses[name] : undefined;
    return tool === null || most === undefined ? tool : { ...tool, run: this.#limited(name, tool, most) };
  }

  /** Returns the function that runs a tool at most `most` times in the run. */
  #limited(name: string, tool: RunnableTool, most: number): RunnableTool["run"] {
    return async (call, context) => {
      const uses = (this.#uses.get(name) ?? 0) + 1;
      this.#uses.set(name, uses);
      if (uses <= most) return await tool.run(call, context);
      const reason = `not run: the limit of uses of the tool is reached (max_uses ${most})`;
      return failedCall(call, { message: reason, code: "max_uses_exceeded" });
    };
  }

  #named(name: string): RunnableTool | null {
    const built = builtInNamed(name, this.#agent.groups);
    if (built !== undefined) return this.#builtIn(built);
    const server = this.#serverTools.get(name);
    if (server !== undefined) return serverTool(server);
    // The tool was removed after the request was read. Its call must not become a call of the client.
    if (this.#agent.serverTools.includes(name)) return goneTool(name);
    const { dispatch } = this.#services;
    return dispatch === null ? null : dispatchedTool(name, dispatch);
  }

  #builtIn({ name, type, kind, label, runsIn }: BuiltInTool): RunnableTool {
    const about = { source: "built_in", kind, label } as const;
    return {
      type,
      about,
      server: null,
      run: async (call, context) => {
        if (runsIn === "web") return await this.#runOnWeb(name, call, context);
        if (runsIn === "files") return textResult(call, await this.#runOnFiles(name, call, context));
        return await this.#runInSandbox(runsIn, call, context);
      },
    };
  }

  async #runOnFiles(name: BuiltInTool["name"], call: ToolCall, { session }: CallContext): Promise<string> {
    const { files } = this.#services;
    return name === "list_files" ? await listFiles(files, session) : await readFileText(files, call.arguments);
  }

  async #runOnWeb(name: BuiltInTool["name"], call: ToolCall, { client, signal }: CallContext): Promise<Ran> {
    const { web } = this.#services;
    const { web: options } = this.#agent;
    if (web === null) throw new Error("web search is not enabled");
    if (name === "search_the_web") {
      const { query } = toolArguments.search_the_web.parse(parsed(call.arguments));
      return searchResult(query, await web.search({ query, options, client }, signal));
    }
    const { url } = toolArguments.website_content_extractor.parse(parsed(call.arguments));
    return pageResult(await web.read({ url, options, client }, signal));
  }

  async #runInSandbox(
    tool: Exclude<BuiltInTool["runsIn"], "files" | "web">,
    call: ToolCall,
    context: CallContext,
  ): Promise<Ran> {
    const { tools } = this.#services;
    const { run, round, session, client, turn, signal } = context;
    const id = callKey(call, context);
    const cancel = (): void => tools.cancel({ id });
    signal.addEventListener("abort", cancel, { once: true });
    const expected = this.#agent.requestedFiles.map(({ name, format }) => ({ name, format }));
    try {
      return await tools.run({ id, session, client, run, round, turn, tool, arguments: call.arguments, expected });
    } finally {
      signal.removeEventListener("abort", cancel);
    }
  }
}

function serverTool(tool: ServerTool): RunnableTool {
  return {
    type: "custom",
    about: tool.about,
    server: tool.server ?? null,
    run: async (call, context) => {
      const { session, client, signal, ask } = context;
      const id = callKey(call, context);
      let hasEnded = false;
      const onProgress: CallContext["onProgress"] = (progress) => {
        if (!hasEnded) context.onProgress(progress);
      };
      try {
        const ran = await tool.run({ id, arguments: call.arguments, session, client, signal, onProgress, ask });
        return { ...textResult(call, ran.content), status: ran.status, images: ran.images };
      } finally {
        hasEnded = true;
      }
    },
  };
}

function dispatchedTool(name: string, dispatch: Dispatch): RunnableTool {
  return {
    type: "custom",
    about: { source: "user", kind: "custom", label: name },
    server: null,
    run: async (call, context) => textResult(call, await dispatch(call, callKey(call, context), context.signal)),
  };
}

function goneTool(name: string): RunnableTool {
  return {
    type: "custom",
    about: { source: "external", kind: "external", label: name },
    server: null,
    run: async () => {
      throw new ServerError("not_found", "the tool does not exist any more: its server has removed it or has gone");
    },
  };
}

/** Identifies a call among those of all runs. */
function callKey({ id }: ToolCall, { run, round }: CallContext): string {
  return `${run}/${round}/${id}`;
}

function pageResult({ url, title, content: text, isCut }: PageText): Ran {
  const content = JSON.stringify({ url, title, content: isCut ? text + CUT : text });
  return { ...nothingMade, status: "success", content, data: { url, title, content } };
}

function searchResult(query: string, pages: readonly FoundPage[]): Ran {
  const sources = pages.map(({ title, url }) => ({ title, url }));
  const output = pages.map(({ title, description, url, content }) => ({ title, description, url, content }));
  return {
    ...nothingMade,
    status: "success",
    content: JSON.stringify({ sources, output }),
    data: { query, results_count: pages.length, sources },
  };
}

function textResult(call: ToolCall, content: string): Ran {
  return { ...nothingMade, status: "success", content, data: { arguments: parsed(call.arguments), content } };
}

/** Returns the result of a call that failed for a reason. */
export function failedCall(
  call: ToolCall,
  { message, code }: { readonly message: string; readonly code: string },
): Ran {
  const { data, ...result } = textResult(call, failureText(message));
  return { ...result, status: "error", data: { ...data, error_code: code } };
}

/** Text at the end of a page whose text was cut at the limit. */
const CUT = "\n[The rest of the page is left out.]";

export const nothingMade = { images: [], videoFrames: [], files: [] } as const;

/** Parses the arguments of a call. Arguments that are not JSON stay text. */
export function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
