// Server state: opens the configured storage, which is Redis, a folder or memory. If no folder is configured and the default
// folder cannot be used, the state is kept in memory.
import { randomBytes } from "node:crypto";
import { isAbsolute, join, resolve } from "node:path";
import type { Files } from "../../actors/api/agent/files.ts";
import type { Sessions } from "../../actors/api/agent/sessions.ts";
import type { Skills } from "../../actors/api/agent/skills.ts";
import type { DesiredAdapters } from "../../actors/api/state/desired-adapters.ts";
import type { McpSessions } from "../../actors/api/state/mcp-sessions.ts";
import type { Replicas } from "../../actors/api/state/replicas.ts";
import { maxStoredBytes, type StoredResponses } from "../../actors/api/stored-responses.ts";
import { StateClient } from "../../actors/front/state-client.ts";
import type { SharedFilesInit, SharedStateInit, StatePlaceInit } from "../../actors/messages.ts";
import { shareSalt } from "../../http/server/client.ts";
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
  /** Other replicas with the same state (state_url); null if the state is not shared. */
  readonly replicas: Replicas | null;
  /** Sessions of the MCP server of all replicas; null if the state is not shared. */
  readonly mcpSessions: McpSessions | null;
  /** LoRA adapters that clients have loaded on any replica; null if the state is not shared. */
  readonly adapters: DesiredAdapters | null;
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
  const shared = troupe.stateUrl === null ? null : sharedInit(troupe.stateUrl, troupe);
  const { restartBackground: restartsBackground } = troupe;
  const limits = { responses, maxFileContentBytes: troupe.filesDisk, skillsFolder, shared, restartsBackground };
  const { stateDir } = troupe;
  if (stateDir === "none" && shared === null && restartsBackground) {
    const message = "restart_background needs state that outlives the server: set state_url, or a folder as state_dir";
    throw new ServerError("config_invalid", message, { param: "restart_background" });
  }
  if (stateDir === "none") return openFront(null, limits, log);
  if (stateDir !== null) return openFront(resolve(stateDir), limits, log);
  try {
    return await openFront(defaultFolder(process.env), limits, log);
  } catch (error) {
    if (!(error instanceof ServerError) || ["skills_dir", "state_url", "files_url"].includes(error.param ?? ""))
      throw error;
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
  const { responses, files, sessions, skills, replicas, adapters, mcpSessions, clientSalt } = front;
  if (clientSalt !== null) shareSalt(clientSalt);
  return {
    responses,
    files,
    sessions,
    skills,
    replicas,
    adapters,
    mcpSessions,
    stop: (deadlineMs) => front.stop(deadlineMs),
  };
}

/**
 * Creates the identity of this replica, and returns the settings of the shared state. A restart of the state thread does not
 * change the identity, because the main thread continues the runs that this replica has begun.
 */
function sharedInit(url: string, { leaseSecs, filesUrl }: Config["troupe"]): SharedStateInit {
  const replica = `replica_${randomBytes(12).toString("hex")}`;
  return {
    url,
    leaseMs: leaseSecs * 1000,
    replica,
    files: filesUrl === null ? null : sharedFiles(filesUrl, process.env),
  };
}

/** Returns the URL of the bucket, and the access keys from the environment. Throws config_invalid. */
function sharedFiles(url: string, environment: Readonly<Record<string, string | undefined>>): SharedFilesInit {
  const { AWS_ACCESS_KEY_ID: accessKeyId = "", AWS_SECRET_ACCESS_KEY: secretAccessKey = "" } = environment;
  const problem =
    accessKeyId === "" || secretAccessKey === ""
      ? "the keys of the bucket in the variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY: set both"
      : (environment.AWS_SESSION_TOKEN ?? "") !== ""
        ? "keys that do not expire; got AWS_SESSION_TOKEN, which is not supported"
        : null;
  if (problem === null) return { url, accessKeyId, secretAccessKey };
  throw new ServerError("config_invalid", `files_url expects ${problem}`, { param: "files_url" });
}

/**
 * Returns the default folder by the XDG rules, which ignore a path that is not absolute. Throws config_invalid if there is no
 * home folder.
 */
export function defaultFolder(environment: Readonly<Record<string, string | undefined>>): string {
  const given = environment.XDG_STATE_HOME ?? "";
  return join(isAbsolute(given) ? given : join(homeFolder(), ".local", "state"), "troupe");
}
