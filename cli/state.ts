// Owns where the server keeps what outlives it, made from the settings: a folder, by the place that may wait for disk, or
// memory. Called by serve.
import { homedir } from "node:os";
import { isAbsolute, join, resolve } from "node:path";
import { ResponseKeeper } from "../actors/response-store/response-keeper.ts";
import { StateFront } from "../actors/state-front.ts";
import type { StoredResponses } from "../actors/stored-responses.ts";
import type { Config } from "../runtime/config/config.ts";
import type { Logger } from "../runtime/log.ts";
import { MemoryStore } from "../runtime/store/memory-store.ts";
import type { StoreLimits } from "../runtime/store/store.ts";

const mailboxLimit = 4096;
/** More than the longest request and its answer come to. */
const maxEntryBytes = 64 * 2 ** 20;
const dayMs = 24 * 3600 * 1000;

export interface State {
  readonly responses: StoredResponses;
  /** Throws config_invalid where the folder cannot be used. */
  start(): Promise<void>;
  stop(deadlineMs: number): Promise<void>;
}

export function serverState({ troupe }: Config, log: Logger): State {
  const limits: StoreLimits = {
    maxEntries: troupe.maxStoredResponses,
    maxBytes: troupe.storedResponsesDisk,
    maxEntryBytes,
    maxAgeMs: troupe.storedResponseDays * dayMs,
  };
  if (troupe.stateDir === "none") {
    const nothing = async (): Promise<void> => {};
    return { responses: new ResponseKeeper(new MemoryStore(limits)), start: nothing, stop: nothing };
  }
  const front = new StateFront({
    init: { folder: resolve(troupe.stateDir ?? defaultFolder(process.env)), mailboxLimit, responses: limits },
    restart: { kind: "restart", minBackoffMs: 500, maxBackoffMs: 30_000, resetAfterMs: 60_000, maxRestarts: 5 },
    log,
  });
  return { responses: front, start: () => front.start(), stop: (deadlineMs) => front.stop(deadlineMs) };
}

/** By the XDG rules: a path that is not absolute counts as none. */
export function defaultFolder(environment: Readonly<Record<string, string | undefined>>): string {
  const given = environment.XDG_STATE_HOME ?? "";
  return join(isAbsolute(given) ? given : join(homedir(), ".local", "state"), "troupe");
}
