// Server state: opens the storage that the settings name, a folder or memory. If no folder is configured and the default folder
// cannot be used, the state is kept in memory.
import { isAbsolute, join, resolve } from "node:path";
import type { Files } from "../../actors/api/agent/files.ts";
import type { Sessions } from "../../actors/api/agent/sessions.ts";
import type { Skills } from "../../actors/api/agent/skills.ts";
import { maxStoredBytes, type StoredResponses } from "../../actors/api/stored-responses.ts";
import { StateClient } from "../../actors/front/state-client.ts";
import type { StatePlaceInit } from "../../actors/messages.ts";
import { ServerError } from "../../runtime/errors.ts";
import { homeFolder } from "../../runtime/host/home.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { StoreLimits } from "../../runtime/store/store.ts";
import type { Config } from "../config/config.ts";

const mailboxLimit = 4096;
const failedStopMs = 1000;
const dayMs = 24 * 3600 * 1000;

export interface State {
  readonly responses: StoredResponses;
  readonly files: Files;
  readonly sessions: Sessions;
  readonly skills: Skills;
  stop(deadlineMs: number): Promise<void>;
}

/** Opens the storage. Throws config_invalid if the configured folder cannot be used. */
export async function openState(
  { troupe, skillsDir }: Pick<Config, "troupe" | "skillsDir">,
  log: Logger,
): Promise<State> {
  const responses: StoreLimits = {
    maxEntries: troupe.maxStoredResponses,
    maxBytes: troupe.storedResponsesDisk,
    maxEntryBytes: maxStoredBytes,
    maxAgeMs: troupe.storedResponseDays * dayMs,
  };
  const skillsFolder = skillsDir === null ? null : resolve(skillsDir);
  const limits = { responses, maxFileContentBytes: troupe.filesDisk, skillsFolder };
  const { stateDir } = troupe;
  if (stateDir === "none") return openFront(null, limits, log);
  if (stateDir !== null) return openFront(resolve(stateDir), limits, log);
  try {
    return await openFront(defaultFolder(process.env), limits, log);
  } catch (error) {
    if (!(error instanceof ServerError) || error.param === "skills_dir") throw error;
    log.warn({ reason: error.message }, "state is kept in memory only; state_dir names another folder for it, or none");
    return openFront(null, limits, log);
  }
}

async function openFront(
  folder: string | null,
  limits: Omit<StatePlaceInit, "folder" | "mailboxLimit">,
  log: Logger,
): Promise<State> {
  const front = new StateClient({ init: { folder, mailboxLimit, ...limits }, log });
  try {
    await front.start();
  } catch (error) {
    await front.stop(failedStopMs);
    throw error;
  }
  const { responses, files, sessions, skills } = front;
  return { responses, files, sessions, skills, stop: (deadlineMs) => front.stop(deadlineMs) };
}

/**
 * Returns the default folder by the XDG rules, which ignore a path that is not absolute. Throws config_invalid if there is no
 * home folder.
 */
export function defaultFolder(environment: Readonly<Record<string, string | undefined>>): string {
  const given = environment.XDG_STATE_HOME ?? "";
  return join(isAbsolute(given) ? given : join(homeFolder(), ".local", "state"), "troupe");
}
