// Rig of the chaos suite, the servers under test: one server with its state in LMDB on a small file system, or three replicas with
// shared state in Redis. Each replica reaches Redis through a proxy that can interrupt the connection.
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadableEdges } from "../../../test/fixtures/http-server.ts";
import { type RedisServer, startRedis } from "../../../test/fixtures/store/redis.ts";
import { freePort } from "../../hostile/rig/server.ts";
import { writeModels } from "./models.ts";
import { RedisLink } from "./redis-link.ts";
import { ChaosServer } from "./server.ts";

export type RigKind = "lmdb" | "redis";

/** Duration of a replica's lease, in seconds. */
export const leaseSecs = 4;
const smallDiskMiB = 48;
const fakeTimeLibrary = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

export class ChaosRig {
  readonly kind: RigKind;
  readonly folder: string;
  readonly servers: ChaosServer[] = [];
  readonly links: RedisLink[] = [];
  readonly redis: RedisServer[];
  /** Index in `redis` of the primary server, to which the proxies (`links`) connect. */
  primary = 0;
  /** Whether the state is on a separate file system, which a fault can fill. */
  readonly hasDisk: boolean;
  /** Whether the servers' clock can be set, by libfaketime. If so, tools run without the sandbox, which libfaketime breaks. */
  readonly hasClock: boolean;

  private constructor(
    kind: RigKind,
    folder: string,
    redis: RedisServer[],
    features: { hasDisk: boolean; hasClock: boolean },
  ) {
    this.kind = kind;
    this.folder = folder;
    this.redis = redis;
    this.hasDisk = features.hasDisk;
    this.hasClock = features.hasClock;
  }

  static async start(kind: RigKind, { replicas = 3, diskMiB = smallDiskMiB } = {}): Promise<ChaosRig> {
    const folder = mkdtempSync(join(tmpdir(), "troupe-chaos-"));
    process.once("exit", () => removed(folder));
    const config = await writeModels(folder);
    const redis = kind === "redis" ? [await startRedis({ aof: true }), await startRedis({ aof: true })] : [];
    for (const name of ["state", "tmp"]) mkdirSync(join(folder, name));
    const rig = new ChaosRig(kind, folder, redis, {
      hasDisk: mounted(join(folder, "state"), diskMiB),
      hasClock: kind === "redis" && fakesTime(),
    });
    rig.setClock("+0");
    if (redis[0] && redis[1]) await replicate(redis[1], redis[0]);
    const count = kind === "redis" ? replicas : 1;
    for (let i = 0; i < count; i++) await rig.#add(config, i);
    await Promise.all(rig.servers.map((server) => server.start()));
    return rig;
  }

  get stateDir(): string {
    return join(this.folder, "state");
  }

  get temporaryFolder(): string {
    return join(this.folder, "tmp");
  }

  /** Sets the servers' clock to an offset in seconds from the real time, such as "+3600". */
  setClock(offset: string): void {
    writeFileSync(join(this.folder, "clock"), offset);
  }

  /** Names of the entries in the servers' folder for temporary files. */
  temporaryEntries(): string[] {
    return readdirSync(this.temporaryFolder);
  }

  async stop(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.end()));
    for (const server of this.servers) server.close();
    for (const link of this.links) link.close();
    await Promise.all(this.redis.map((server) => server.stop()));
    removed(this.folder);
  }

  async #add(config: string, index: number): Promise<void> {
    const environment: Record<string, string> = {
      TMPDIR: this.temporaryFolder,
      SERVICE_ALLOW_RUNTIME_LORA_UPDATING: "1",
    };
    if (this.hasClock) {
      environment.LD_PRELOAD = fakeTimeLibrary;
      environment.FAKETIME_TIMESTAMP_FILE = join(this.folder, "clock");
      environment.FAKETIME_DONT_FAKE_MONOTONIC = "1";
      environment.FAKETIME_NO_CACHE = "1";
    }
    if (this.redis[0] !== undefined) {
      const link = await RedisLink.open(portOf(this.redis[0]));
      this.links.push(link);
      environment.TROUPE_STATE_URL = link.url;
    }
    const flags = [
      ...["--cpu", "--engine", "wasm", "--threads", "1", "--isolate", "true", "--kv-cache", "32768tokens"],
      ...["--edge", loadableEdges()[0] ?? "node", "--enable-shell", "--max-seqs", "8", "--disable-access-log"],
      ...["--state-dir", join(this.stateDir, String(index)), "--max-background-responses", "256"],
      ...(this.kind === "redis" ? ["--lease-secs", String(leaseSecs)] : []),
    ];
    const logFile = join(this.folder, `server-${index}.log`);
    this.servers.push(new ChaosServer({ port: await freePort(), config, flags, environment, logFile }));
  }
}

export function portOf({ url }: RedisServer): number {
  return Number(new URL(url).port);
}

/** Makes one Redis server a replica of another, and waits until they are connected. */
export async function replicate(replica: RedisServer, primary: RedisServer): Promise<void> {
  await redisCommand(replica, `REPLICAOF 127.0.0.1 ${portOf(primary)}`);
  for (let i = 0; i < 500; i++) {
    if (/master_link_status:up/.test(await redisCommand(replica, "INFO replication"))) return;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error("a Redis server did not become a replica");
}

/** Sends one command to Redis. Returns the first data of the reply, which may be incomplete. */
export async function redisCommand(server: RedisServer, command: string): Promise<string> {
  const { connect } = await import("node:net");
  const socket = connect(portOf(server), "127.0.0.1");
  try {
    return await new Promise<string>((resolve, reject) => {
      socket.once("error", reject);
      socket.once("data", (data) => resolve(String(data)));
      socket.write(`${command}\r\n`);
    });
  } finally {
    socket.destroy();
  }
}

/** Mounts a file system of `diskMiB` MiB on `folder`. Returns false if the mount fails, for example for lack of permission. */
function mounted(folder: string, diskMiB: number): boolean {
  try {
    execFileSync("mount", ["-t", "tmpfs", "-o", `size=${diskMiB}m`, "tmpfs", folder], { stdio: "ignore" });
    return true;
  } catch {
    return false;
  }
}

/** Unmounts the rig's file system and removes the rig's folder. */
function removed(folder: string): void {
  spawnSync("umount", ["-l", join(folder, "state")], { stdio: "ignore" });
  rmSync(folder, { recursive: true, force: true });
}

function fakesTime(): boolean {
  try {
    execFileSync(process.execPath, ["-e", "0"], {
      env: { ...process.env, LD_PRELOAD: fakeTimeLibrary },
      stdio: ["ignore", "ignore", "pipe"],
    });
    return readdirSync("/usr/lib/x86_64-linux-gnu/faketime").length > 0;
  } catch {
    return false;
  }
}
