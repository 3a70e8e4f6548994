// Start of a request's generation: in the agent loop if the request uses the loop, else without it.
import type { AgentEvent, AgentOptions } from "../../../actors/api/agent/agents.ts";
import type { GenerateRequest } from "../../../engines/generation.ts";
import type { Context } from "../../context.ts";
import type { Exchange } from "../../exchange.ts";
import type { OfferedTools } from "./run-tools.ts";

/** A request together with its options for the agent loop; `agent` is null if the request does not use the loop. */
export interface RunRequest {
  readonly request: GenerateRequest;
  readonly agent: AgentOptions | null;
}

export function startRun(
  { inference, agents }: Pick<Context, "inference" | "agents">,
  { request, agent }: RunRequest,
  signal: AbortSignal,
  onPrepared?: () => void,
): AsyncIterable<readonly AgentEvent[]> {
  if (agent === null || agents === null) return inference.generate(request, signal, onPrepared);
  return agents.run(request, agent, signal, onPrepared);
}

/**
 * Returns whether a stream in a protocol of OpenAI may have events of the agent loop. The streaming helpers of OpenAI's
 * client library fail on unknown events, so their requests, which have a helper header, get none.
 */
export function takesExtensions({ request }: Exchange, agent: AgentOptions | null): boolean {
  return agent?.isPlain !== true && request.headers.get("x-stainless-helper-method") === undefined;
}

/** Returns the tools that the server offers, for the translation of a body; null: the server has no agent loop. */
export function offeredBy({ agents }: Pick<Context, "agents">): OfferedTools | null {
  if (agents === null) return null;
  const { groups, dispatches, permission, serverTools, registersServerTools } = agents;
  return { groups, dispatches, permission, serverTools, registersServerTools };
}
