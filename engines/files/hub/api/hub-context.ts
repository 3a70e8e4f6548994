// Hub context: address, token, limits on attempts and waits, and the caller's abort signal. All requests of one fetch
// share it. Created by default-model.ts, resolve-model.ts, resolve-adapter.ts and cli/commands/login.ts.
import type { Environment, FetchOptions, HubLimits } from "../download/fetch-options.ts";
import { hubEndpoint } from "./hub-locations.ts";
import { readToken } from "./hub-token.ts";

export interface HubContext {
  /** Address of the hub, without a trailing slash. */
  readonly endpoint: string;
  readonly token: string | null;
  /** Environment variables, which may name a proxy. */
  readonly environment: Environment;
  readonly limits: HubLimits;
  readonly signal: AbortSignal | undefined;
}

const defaultLimits: HubLimits = {
  attempts: 5,
  firstDelayMs: 500,
  maxDelayMs: 10_000,
  maxRetryAfterMs: 60_000,
  answerMs: 15_000,
  stallMs: 30_000,
  connections: 4,
  partBytes: 64 * 2 ** 20,
  progressBytes: 2 ** 20,
  saveMs: 1000,
  lockPollMs: 250,
};

const hurriedMs = 4000;

/**
 * Creates a context from options and environment. Throws `config_invalid` if the endpoint or the token's source is
 * wrong.
 */
export async function createHubContext(options: FetchOptions = {}): Promise<HubContext> {
  const { environment = process.env, tokenSource = "cache", limits, signal } = options;
  return {
    endpoint: hubEndpoint(environment),
    token: await readToken(tokenSource, environment),
    environment,
    limits: { ...defaultLimits, ...limits },
    signal,
  };
}

/** Returns the same context with one attempt and short limits, for requests whose failure is harmless. */
export function hurried(context: HubContext): HubContext {
  const { limits } = context;
  const answerMs = Math.min(limits.answerMs, hurriedMs);
  return { ...context, limits: { ...limits, attempts: 1, answerMs, stallMs: Math.min(limits.stallMs, hurriedMs) } };
}
