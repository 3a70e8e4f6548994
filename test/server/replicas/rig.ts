// Replica rig for tests: several server processes that share one Redis server, and a client that follows streams.
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type RedisServer, startRedis } from "../../fixtures/store/redis.ts";

const children = new Set<ChildProcess>();
process.on("exit", () => {
  for (const child of children) child.kill("SIGKILL");
});

const program = fileURLToPath(new URL("./replica-program.js", import.meta.url));

export interface Replica {
  readonly url: string;
  readonly process: ChildProcess;
  /** Text that the replica has written to stderr. */
  errors(): string;
}

export interface ReplicaRig {
  readonly redis: RedisServer;
  readonly replicas: readonly Replica[];
  /** Kills a replica and starts a new one in its place. */
  replace(index: number): Promise<void>;
  kill(index: number): Promise<void>;
  stop(): Promise<void>;
}

export async function startReplicas(
  count: number,
  { leaseMs = 1000, aof = false, restarts = false } = {},
): Promise<ReplicaRig> {
  const folder = mkdtempSync(join(tmpdir(), "troupe-replicas-"));
  const redis = await startRedis({ aof });
  const start = (index: number) => startReplica(redis.url, leaseMs, join(folder, String(index)), restarts);
  const replicas = await Promise.all(Array.from({ length: count }, (_, i) => start(i)));
  const kill = async (index: number): Promise<void> => {
    const child = (replicas[index] as Replica).process;
    child.kill("SIGKILL");
    if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
  };
  return {
    redis,
    replicas,
    kill,
    replace: async (index) => {
      await kill(index);
      replicas[index] = await start(index);
    },
    stop: async () => {
      for (const { process: child } of replicas) child.kill("SIGKILL");
      await redis.stop();
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

export async function startReplica(
  redis: string,
  leaseMs: number,
  folder: string,
  restarts = false,
  environment: Readonly<Record<string, string>> = {},
): Promise<Replica> {
  const argv = [program, redis, String(leaseMs), folder, "0", restarts ? "restarts" : ""];
  const env = { ...process.env, ...environment };
  const child = spawn(process.execPath, argv, { stdio: ["ignore", "pipe", "pipe"], env });
  let errors = "";
  child.stderr.on("data", (data: Buffer) => {
    errors = (errors + data).slice(-20_000);
  });
  children.add(child);
  const url = await new Promise<string>((resolve, reject) => {
    child.stdout.once("data", (data: Buffer) => resolve(String(data).trim()));
    child.once("exit", (code) => reject(new Error(`a replica ended with code ${code}:\n${errors}`)));
  });
  return { url, process: child, errors: () => errors };
}

export interface StreamEvent {
  readonly type: string;
  readonly sequence_number: number;
  readonly response?: { readonly id: string; readonly status: string; readonly model?: string };
  /** Model of a chunk of a chat completion. */
  readonly model?: string;
  readonly approval_id?: string;
  readonly error?: { readonly code?: string; readonly type?: string };
  readonly delta?: string;
  readonly code?: string;
}

/** Client of a stream, which collects the events as they arrive. */
export class Follower {
  readonly events: StreamEvent[] = [];
  readonly status: Promise<number>;
  /** Resolves when the stream has ended. The value tells whether it ended with [DONE]. */
  readonly ended: Promise<boolean>;
  readonly #waits: (() => void)[] = [];
  readonly #stop = new AbortController();
  #hasEnded = false;

  constructor(url: string, init: RequestInit = {}) {
    const reply = fetch(url, { ...init, signal: this.#stop.signal });
    this.status = reply.then(({ status }) => status);
    this.status.catch(() => {});
    this.ended = reply.then((response) => this.#read(response));
    this.ended
      .catch(() => {})
      .then(() => {
        this.#hasEnded = true;
        this.#wake();
      });
  }

  /** Resolves with the first event that matches; undefined if the stream ends without a match. */
  async first(fits: (event: StreamEvent) => boolean): Promise<StreamEvent | undefined> {
    for (;;) {
      const found = this.events.find(fits);
      if (found !== undefined || this.#hasEnded) return found;
      await new Promise<void>((resolve) => this.#waits.push(resolve));
    }
  }

  /** Whether the stream has ended or was cut. */
  get hasEnded(): boolean {
    return this.#hasEnded;
  }

  leave(): void {
    this.#stop.abort();
  }

  async #read(response: Response): Promise<boolean> {
    let text = "";
    let isDone = false;
    for await (const piece of (response.body ?? []) as AsyncIterable<Uint8Array>) {
      text += Buffer.from(piece).toString("latin1");
      for (let end = text.indexOf("\n\n"); end >= 0; end = text.indexOf("\n\n")) {
        const data = /^data: (.*)$/m.exec(text.slice(0, end))?.[1];
        text = text.slice(end + 2);
        if (data === "[DONE]") isDone = true;
        else if (data !== undefined) this.events.push(JSON.parse(data) as StreamEvent);
      }
      this.#wake();
    }
    return isDone;
  }

  #wake(): void {
    for (const wake of this.#waits.splice(0)) wake();
  }
}

export function post(url: string, body: object = {}): Promise<Response> {
  return fetch(url, jsonBody(body));
}

export function jsonBody(body: object): RequestInit {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
}

export const isLast = ({ type }: StreamEvent): boolean =>
  ["response.completed", "response.incomplete", "response.failed", "response.cancelled", "error"].includes(type);
