// Start of a generation: runs it in the agent loop if the request uses the loop, otherwise directly.
import type { AgentEvent, AgentOptions } from "../../../actors/api/agent/agents.ts";
import type { GenerateRequest } from "../../../engines/generation.ts";
import type { Context } from "../../context.ts";
import type { Exchange } from "../../exchange.ts";
import type { OfferedTools } from "./run-tools.ts";

/** Generation request with its options for the agent loop; `agent` is null if it does not use the loop. */
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
 * Returns whether a stream of an OpenAI protocol may contain agent loop events. The streaming helpers of OpenAI's client
 * library fail on unknown events, so requests with a helper header get none of these events.
 */
export function takesExtensions({ request }: Exchange, agent: AgentOptions | null): boolean {
  return agent?.isPlain !== true && request.headers.get("x-stainless-helper-method") === undefined;
}

/** Returns the server's tools, for the translation of a body; null: the server has no agent loop. */
export function offeredBy({ agents }: Pick<Context, "agents">): OfferedTools | null {
  if (agents === null) return null;
  const { groups, dispatches, permission, serverTools, registersServerTools } = agents;
  return { groups, dispatches, permission, serverTools, registersServerTools };
}
