// Rig: what a probe works with. Its folder, the server under attack, and attackers that hang up when the probe is over.
import { setMaxListeners } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { get, post, type Reply, type SendOptions } from "./client.ts";
import type { ProbeSetup, ServerChanges } from "./probe.ts";
import { HostileServer, type ServerSettings } from "./server.ts";

/** Blocks of the KV cache for a few long sequences; more takes the llama engine long to set aside. */
const usualFlags = ["--kv-cache", "32768tokens"];

export class Rig implements ProbeSetup {
  readonly folder: string;
  readonly model: string;
  readonly edge: ServerSettings["edge"];
  readonly engine: ServerSettings["engine"];
  readonly stateDir: string;
  /** The built checkout whose server is attacked. */
  readonly directory: string;
  server: HostileServer | null = null;
  readonly #nodeFlags: readonly string[];
  readonly #done = new AbortController();
  readonly #servers: HostileServer[] = [];
  readonly #atEnd: (() => void)[] = [];

  constructor(setup: ProbeSetup, directory: string, nodeFlags: readonly string[]) {
    const { folder, model, edge, engine } = setup;
    this.folder = folder;
    this.model = model;
    this.edge = edge;
    this.engine = engine;
    this.directory = directory;
    this.#nodeFlags = nodeFlags;
    this.stateDir = join(folder, "state");
    // Each request listens to it.
    setMaxListeners(0, this.#done.signal);
    mkdirSync(this.stateDir, { recursive: true });
  }

  /** Aborted when the probe is over. */
  get signal(): AbortSignal {
    return this.#done.signal;
  }

  async start(changes: ServerChanges & { readonly startLimitMs?: number } = {}): Promise<HostileServer> {
    const { flags = [], nodeFlags = [], models = [this.model], ...rest } = changes;
    const server = await HostileServer.start({
      ...rest,
      directory: this.directory,
      edge: this.edge,
      engine: this.engine,
      models,
      stateDir: this.stateDir,
      flags: [...usualFlags, ...flags],
      nodeFlags: [...this.#nodeFlags, ...nodeFlags],
    });
    this.#servers.push(server);
    return server;
  }

  /** Posts as the attacker, who hangs up when the probe is over. */
  post(path: string, body: object | string, options: SendOptions = {}): Promise<Reply> {
    return post(this.#url, path, body, { ...options, signal: this.#until(options.signal) });
  }

  get(path: string, options: SendOptions = {}): Promise<Reply> {
    return get(this.#url, path, { ...options, signal: this.#until(options.signal) });
  }

  chat(fields: object, options: SendOptions = {}): Promise<Reply> {
    return this.post("/v1/chat/completions", { messages: "Say something.", max_tokens: 8, ...fields }, options);
  }

  /** Attackers hang up. */
  end(): void {
    this.#done.abort();
  }

  /** Runs something when the servers have stopped. */
  atEnd(work: () => void): void {
    this.#atEnd.push(work);
  }

  async close(): Promise<void> {
    this.end();
    await Promise.all(this.#servers.map((server) => server.stop()));
    for (const work of this.#atEnd) work();
  }

  get #url(): string {
    return (this.server ?? this.#servers.at(-1))?.url ?? "";
  }

  #until(signal: AbortSignal | undefined): AbortSignal {
    return signal === undefined ? this.#done.signal : AbortSignal.any([signal, this.#done.signal]);
  }
}
