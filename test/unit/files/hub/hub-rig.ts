// Hub rig: a fake hub, an empty cache, low limits, and files with distinct bytes.
import assert from "node:assert/strict";
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, beforeEach } from "node:test";
import type { Environment, FetchOptions, HubLimits } from "../../../../engines/files/hub/download/fetch-options.ts";
import { resolveModel } from "../../../../engines/files/hub/resolve-model.ts";
import { type FakeHub, startFakeHub } from "../../../fixtures/fakes/fake-hub.ts";

export const repo = "acme/tiny-GGUF";
export const commit = "c".repeat(40);
export const partBytes = 1000;

export const limits: HubLimits = {
  attempts: 3,
  firstDelayMs: 1,
  maxDelayMs: 4,
  maxRetryAfterMs: 2000,
  answerMs: 1000,
  stallMs: 60,
  connections: 3,
  partBytes,
  progressBytes: 1_000_000,
  saveMs: 0,
  lockPollMs: 5,
};

/** Returns a model file of four and a half download parts. Each `seed` gives different bytes. */
export function modelBytes(seed = 1): Buffer {
  const bytes = Buffer.alloc(4.5 * partBytes);
  for (let index = 0; index < bytes.length; index++) bytes[index] = (index * 31 + seed * 17 + (index >> 8) * 7) & 255;
  bytes.write("GGUF");
  return bytes;
}

export interface HubRig {
  readonly hub: FakeHub;
  /** Path of the hub cache. */
  readonly cache: string;
  readonly environment: Environment;
  readonly notices: string[];
  put(files: Readonly<Record<string, Buffer>>, id?: string): void;
  /** Resolves a model source. Returns the path of the file. */
  resolve(source?: string, options?: FetchOptions): Promise<string>;
  assertRefused(source: string, code: string, message: RegExp, options?: FetchOptions): Promise<void>;
  /** Resolves `source` to a file. Asserts that the file contains exactly these bytes. */
  assertFetched(bytes: Buffer, source?: string, options?: FetchOptions): Promise<void>;
  /** Returns the names of the files in the cache's blobs folder, sorted. */
  blobs(): string[];
}

/** Starts a hub for the tests of one file. It is reset before each test. */
export async function useHub(): Promise<HubRig> {
  const base = mkdtempSync(join(tmpdir(), "fake-hub-"));
  const cache = join(base, "hub");
  const hub = await startFakeHub();
  const fresh = { commit: hub.commit, fault: hub.fault };
  const rig: HubRig = {
    hub,
    cache,
    environment: { HF_ENDPOINT: hub.url, HF_HOME: base, XDG_CACHE_HOME: base },
    notices: [],
    put: (files, id = repo) => void hub.repos.set(id, new Map(Object.entries(files))),
    resolve: async (source = `${repo}:Q8_0`, options = {}) => {
      const onNotice = (message: string) => rig.notices.push(message);
      const { path } = await resolveModel(source, { environment: rig.environment, limits, onNotice, ...options });
      return path;
    },
    assertRefused: (source, code, message, options) =>
      assert.rejects(rig.resolve(source, options), { name: "ServerError", code, message }),
    assertFetched: async (bytes, source, options) => {
      assert.ok(readFileSync(await rig.resolve(source, options)).equals(bytes), "the file has other bytes");
    },
    blobs: () => {
      const folder = join(cache, `models--${repo.replace("/", "--")}`, "blobs");
      return existsSync(folder) ? readdirSync(folder).sort() : [];
    },
  };
  beforeEach(() => {
    rmSync(cache, { recursive: true, force: true });
    rmSync(join(base, "token"), { force: true });
    Object.assign(hub, { ...fresh, branches: ["main"], knowsRanges: true });
    for (const kept of [hub.repos, hub.accounts]) kept.clear();
    for (const kept of [hub.requests, rig.notices]) kept.length = 0;
  });
  after(async () => {
    await hub.stop();
    rmSync(base, { recursive: true, force: true });
  });
  return rig;
}
