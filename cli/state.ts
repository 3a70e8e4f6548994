// Owns where the server keeps what outlives it, made from the settings: a folder, by the place that may wait for disk, or
// memory. Called by serve, which goes on without a folder where none was asked for.
import { isAbsolute, join, resolve } from "node:path";
import { ResponseKeeper } from "../actors/response-store/response-keeper.ts";
import { StateFront } from "../actors/state-front.ts";
import { maxStoredBytes, type StoredResponses } from "../actors/stored-responses.ts";
import type { Config } from "../runtime/config/config.ts";
import { ServerError } from "../runtime/errors.ts";
import { homeFolder } from "../runtime/home.ts";
import type { Logger } from "../runtime/log.ts";
import { MemoryStore } from "../runtime/store/memory-store.ts";
import type { StoreLimits } from "../runtime/store/store.ts";

const mailboxLimit = 4096;
const failedStopMs = 1000;
const dayMs = 24 * 3600 * 1000;

export interface State {
  readonly responses: StoredResponses;
  stop(deadlineMs: number): Promise<void>;
}

/** Throws config_invalid where the folder that was asked for cannot be used. */
export async function openState({ troupe }: Pick<Config, "troupe">, log: Logger): Promise<State> {
  const limits: StoreLimits = {
    maxEntries: troupe.maxStoredResponses,
    maxBytes: troupe.storedResponsesDisk,
    maxEntryBytes: maxStoredBytes,
    maxAgeMs: troupe.storedResponseDays * dayMs,
  };
  const { stateDir } = troupe;
  if (stateDir === "none") return inMemory(limits);
  if (stateDir !== null) return inFolder(resolve(stateDir), limits, log);
  try {
    return await inFolder(defaultFolder(process.env), limits, log);
  } catch (error) {
    if (!(error instanceof ServerError)) throw error;
    log.warn({ reason: error.message }, "state is kept in memory only; state_dir names another folder for it, or none");
    return inMemory(limits);
  }
}

function inMemory(limits: StoreLimits): State {
  return { responses: new ResponseKeeper(new MemoryStore(limits)), stop: async () => {} };
}

async function inFolder(folder: string, limits: StoreLimits, log: Logger): Promise<State> {
  const front = new StateFront({
    init: { folder, mailboxLimit, responses: limits },
    restart: { kind: "restart", minBackoffMs: 500, maxBackoffMs: 30_000, resetAfterMs: 60_000, maxRestarts: 5 },
    log,
  });
  try {
    await front.start();
  } catch (error) {
    await front.stop(failedStopMs);
    throw error;
  }
  return { responses: front, stop: (deadlineMs) => front.stop(deadlineMs) };
}

/** By the XDG rules: a path that is not absolute counts as none. Throws config_invalid where there is no home folder. */
export function defaultFolder(environment: Readonly<Record<string, string | undefined>>): string {
  const given = environment.XDG_STATE_HOME ?? "";
  return join(isAbsolute(given) ? given : join(homeFolder(), ".local", "state"), "troupe");
}
