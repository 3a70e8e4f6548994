// Owns what every request to the hub needs to know: its address, the token, the limits on tries and waits, and the caller's
// signal. Made once a fetch by resolve-model.ts and by cli/login.ts.
import type { FetchOptions, HubLimits } from "../download/fetch-options.ts";
import { hubEndpoint } from "./hub-locations.ts";
import { readToken } from "./hub-token.ts";

export interface HubContext {
  /** Without a slash at its end. */
  readonly endpoint: string;
  readonly token: string | null;
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

/** Throws config_invalid where the endpoint or the token's source is wrong. */
export async function createHubContext(options: FetchOptions = {}): Promise<HubContext> {
  const { environment = process.env, tokenSource = "cache", limits, signal } = options;
  return {
    endpoint: hubEndpoint(environment),
    token: await readToken(tokenSource, environment),
    limits: { ...defaultLimits, ...limits },
    signal,
  };
}

/** The same hub, asked once and briefly, for where something else can be done without its answer. */
export function hurried(context: HubContext): HubContext {
  const { limits } = context;
  const answerMs = Math.min(limits.answerMs, hurriedMs);
  return { ...context, limits: { ...limits, attempts: 1, answerMs, stallMs: Math.min(limits.stallMs, hurriedMs) } };
}
