// Built-in calls: runs calls of built-in tools in the sandbox, on the file store or on the web.
import type { ToolCall } from "../../../engines/generation.ts";
import { jsonOrText } from "../../../runtime/json-or-text.ts";
import type { AgentOptions } from "../../api/agent/agents.ts";
import type { Files } from "../../api/agent/files.ts";
import type { Tools } from "../../api/agent/tools.ts";
import type { FoundPage, PageText, Web } from "../../api/agent/web.ts";
import { type BuiltInTool, toolArguments } from "../../tools/schemas.ts";
import { listFiles, readFileText } from "../files/file-tools.ts";
import {
  type CallContext,
  type CallOutcome,
  callKey,
  nothingMade,
  outcomeOfText,
  type RunnableTool,
} from "./runnable-tool.ts";

export interface BuiltInServices {
  readonly tools: Tools;
  readonly files: Files;
  /** Web search and page reading; null = web search is not enabled. */
  readonly web: Web | null;
}

type Agent = Pick<AgentOptions, "requestedFiles" | "web">;

export class BuiltInCalls {
  readonly #services: BuiltInServices;
  readonly #agent: Agent;

  constructor(services: BuiltInServices, agent: Agent) {
    this.#services = services;
    this.#agent = agent;
  }

  toolOf({ name, type, kind, label, runsIn }: BuiltInTool): RunnableTool {
    return {
      type,
      about: { source: "built_in", kind, label },
      server: null,
      run: async (call, context) => {
        if (runsIn === "web") return await this.#runOnWeb(name, call, context);
        if (runsIn === "files") return outcomeOfText(call, await this.#runOnFiles(name, call, context));
        return await this.#runInSandbox(runsIn, call, context);
      },
    };
  }

  async #runOnFiles(name: BuiltInTool["name"], call: ToolCall, { session }: CallContext): Promise<string> {
    const { files } = this.#services;
    return name === "list_files" ? await listFiles(files, session) : await readFileText(files, call.arguments);
  }

  async #runOnWeb(name: BuiltInTool["name"], call: ToolCall, { client, signal }: CallContext): Promise<CallOutcome> {
    const { web } = this.#services;
    const { web: options } = this.#agent;
    if (web === null) throw new Error("web search is not enabled");
    if (name === "search_the_web") {
      const { query } = toolArguments.search_the_web.parse(jsonOrText(call.arguments));
      return searchOutcome(query, await web.search({ query, options, client }, signal));
    }
    const { url } = toolArguments.website_content_extractor.parse(jsonOrText(call.arguments));
    return pageOutcome(await web.read({ url, options, client }, signal));
  }

  async #runInSandbox(
    tool: Exclude<BuiltInTool["runsIn"], "files" | "web">,
    call: ToolCall,
    context: CallContext,
  ): Promise<CallOutcome> {
    const { tools } = this.#services;
    const { run, round, session, client, turn, signal } = context;
    // The request may have ended while an approval of all actions was stored.
    signal.throwIfAborted();
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

function pageOutcome({ url, title, content: text, isCut }: PageText): CallOutcome {
  const content = JSON.stringify({ url, title, content: isCut ? text + CUT : text });
  return { ...nothingMade, status: "success", content, data: { url, title, content } };
}

function searchOutcome(query: string, pages: readonly FoundPage[]): CallOutcome {
  const sources = pages.map(({ title, url }) => ({ title, url }));
  const output = pages.map(({ title, description, url, content }) => ({ title, description, url, content }));
  return {
    ...nothingMade,
    status: "success",
    content: JSON.stringify({ sources, output }),
    data: { query, results_count: pages.length, sources },
  };
}

/** Marker at the end of a page's text that was cut at the size limit. */
const CUT = "\n[The rest of the page is left out.]";
