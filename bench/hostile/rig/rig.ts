// Rig: the environment of a probe. It has a folder, the server under attack, and attackers that disconnect when the attack
// ends.
import { setMaxListeners } from "node:events";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EngineName } from "../../../engines/engine.ts";
import type { EdgeName } from "../../../http/server/listen.ts";
import { get, post, type Reply, type SendOptions } from "./client.ts";
import type { ServerChanges } from "./server.ts";
import { HostileServer } from "./server.ts";

/**
 * Flags of every server. The KV cache is small because the llama engine needs a long time to allocate a large one. One compute
 * thread leaves cores free, so that waits are caused by the server and not by a machine without free cores.
 */
const usualFlags = ["--kv-cache", "32768tokens", "--threads", "1"];

export interface RigOptions {
  /** Path of the real model. */
  readonly model: string;
  readonly edge: EdgeName;
  readonly engine: EngineName;
  /** Folder of the built checkout whose server is attacked. */
  readonly directory: string;
  readonly nodeFlags: readonly string[];
}

export class Rig {
  /** Folder for temporary files; close() removes it. */
  readonly folder = mkdtempSync(join(tmpdir(), "troupe-hostile-"));
  readonly stateDir = join(this.folder, "state");
  readonly options: RigOptions;
  server: HostileServer | null = null;
  #attack = new AbortController();
  readonly #servers: HostileServer[] = [];
  readonly #atEnd: (() => void | Promise<void>)[] = [];

  constructor(options: RigOptions) {
    this.options = options;
    mkdirSync(this.stateDir);
  }

  /** Aborted when the attack ends. */
  get signal(): AbortSignal {
    // Each request adds a listener, so the limit is removed.
    setMaxListeners(0, this.#attack.signal);
    return this.#attack.signal;
  }

  async start(changes: ServerChanges & { readonly startLimitMs?: number } = {}): Promise<HostileServer> {
    const { flags = [], nodeFlags = [], models = [this.options.model], ...rest } = changes;
    const server = await HostileServer.start({
      ...rest,
      ...this.options,
      models,
      stateDir: this.stateDir,
      flags: [...usualFlags, ...flags],
      nodeFlags: [...this.options.nodeFlags, ...nodeFlags],
    });
    this.#servers.push(server);
    return server;
  }

  /** Posts as the attacker, who disconnects when the attack ends. */
  post(path: string, body: object | string, options: SendOptions = {}): Promise<Reply> {
    return post(this.#url, path, body, { ...options, signal: this.#until(options.signal) });
  }

  get(path: string, options: SendOptions = {}): Promise<Reply> {
    return get(this.#url, path, { ...options, signal: this.#until(options.signal) });
  }

  chat(fields: object, options: SendOptions = {}): Promise<Reply> {
    return this.post("/v1/chat/completions", { messages: "Say something.", max_tokens: 8, ...fields }, options);
  }

  /** Aborts all requests of the attackers. */
  hangUp(): void {
    this.#attack.abort();
    this.#attack = new AbortController();
  }

  /** Registers `work` to run after the servers have stopped. The last registered work runs first. */
  atEnd(work: () => void | Promise<void>): void {
    this.#atEnd.unshift(work);
  }

  async close(): Promise<void> {
    this.hangUp();
    await Promise.all(this.#servers.map((server) => server.stop()));
    for (const work of this.#atEnd) await work();
    rmSync(this.folder, { recursive: true, force: true });
  }

  get #url(): string {
    return (this.server ?? this.#servers.at(-1))?.url ?? "";
  }

  #until(signal: AbortSignal | undefined): AbortSignal {
    return signal === undefined ? this.signal : AbortSignal.any([signal, this.signal]);
  }
}
