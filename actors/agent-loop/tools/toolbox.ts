// Toolbox: finds the server-side tools of one run by name, and limits how often each is used.
import type { AgentOptions } from "../../api/agent/agents.ts";
import type { ServerTool } from "../../api/agent/server-tools.ts";
import { builtInNamed } from "../../tools/schemas.ts";
import { BuiltInCalls, type BuiltInServices } from "./built-in-calls.ts";
import { dispatchedTool, goneTool, serverTool } from "./custom-tools.ts";
import type { Dispatch } from "./dispatch.ts";
import { outcomeOfError, type RunnableTool } from "./runnable-tool.ts";

export interface ToolServices extends BuiltInServices {
  /** Sends calls to the dispatch URL; null = no dispatch URL is configured. */
  readonly dispatch: Dispatch | null;
}

type Agent = Pick<AgentOptions, "groups" | "serverTools" | "requestedFiles" | "web" | "maxUses">;

export class Toolbox {
  readonly #dispatch: Dispatch | null;
  readonly #agent: Agent;
  readonly #builtIn: BuiltInCalls;
  readonly #serverTools: ReadonlyMap<string, ServerTool>;
  /** Number of calls so far, by tool name. Only tools with a limit are counted. */
  readonly #uses = new Map<string, number>();

  /** `serverTools`: the tools of all sources. Only those that the request names are used. */
  constructor(services: ToolServices, agent: Agent, serverTools: readonly ServerTool[]) {
    this.#dispatch = services.dispatch;
    this.#agent = agent;
    this.#builtIn = new BuiltInCalls(services, agent);
    const offered = serverTools.filter(({ spec }) => agent.serverTools.includes(spec.name));
    // If two sources have a tool of the same name, the earlier source wins.
    this.#serverTools = new Map(offered.toReversed().map((tool) => [tool.spec.name, tool]));
  }

  /** Returns the tool with this name; null = the client runs the tool. */
  find(name: string): RunnableTool | null {
    const tool = this.#named(name);
    const { maxUses } = this.#agent;
    // Names come from the model and may be, for example, `constructor`.
    const most = Object.hasOwn(maxUses, name) ? maxUses[name] : undefined;
    return tool === null || most === undefined ? tool : { ...tool, run: this.#limited(name, tool, most) };
  }

  /** Wraps a tool's `run` function so that it runs at most `most` times in the run. */
  #limited(name: string, tool: RunnableTool, most: number): RunnableTool["run"] {
    return async (call, context) => {
      const uses = (this.#uses.get(name) ?? 0) + 1;
      this.#uses.set(name, uses);
      if (uses <= most) return await tool.run(call, context);
      const reason = `not run: the limit of uses of the tool is reached (max_uses ${most})`;
      return outcomeOfError(call, { message: reason, code: "max_uses_exceeded" });
    };
  }

  #named(name: string): RunnableTool | null {
    const built = builtInNamed(name, this.#agent.groups);
    if (built !== undefined) return this.#builtIn.toolOf(built);
    const server = this.#serverTools.get(name);
    if (server !== undefined) return serverTool(server);
    // A call of a removed server tool must fail, rather than be passed to the client.
    if (this.#agent.serverTools.includes(name)) return goneTool(name);
    return this.#dispatch === null ? null : dispatchedTool(name, this.#dispatch);
  }
}
