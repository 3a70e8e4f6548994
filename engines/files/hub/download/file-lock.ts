// File lock: ensures that only one process at a time fetches a file. The process that holds the lock regularly updates
// the lock file's time. Other processes take over a lock that is no longer updated. After a long sleep of the machine,
// two processes may hold the lock. This is harmless, because they only do the same work twice.
import { mkdir, open, readFile, rm, stat, utimes } from "node:fs/promises";
import { hostname } from "node:os";
import { dirname } from "node:path";
import { pause } from "./retry.ts";

/** Paths of the locks that this process holds. */
const held = new Set<string>();
const touchMs = 5000;
const abandonedMs = 30_000;

export interface LockOptions {
  readonly pollMs: number;
  readonly signal: AbortSignal | undefined;
  /** Called once if another process holds the lock. */
  readonly onWait: () => void;
}

/** Waits for the lock at `path`, and runs `work` while holding it. */
export async function withFileLock<T>(path: string, options: LockOptions, work: () => Promise<T>): Promise<T> {
  await mkdir(dirname(path), { recursive: true });
  for (let tries = 0; !(await take(path)); tries++) {
    if (tries === 0) options.onWait();
    await pause(options.pollMs, options.signal);
  }
  // If the update fails, other processes treat the lock as abandoned, which is harmless.
  const touching = setInterval(() => void utimes(path, new Date(), new Date()).catch(() => undefined), touchMs);
  try {
    return await work();
  } finally {
    held.delete(path);
    clearInterval(touching);
    await rm(path, { force: true });
  }
}

async function take(path: string): Promise<boolean> {
  try {
    const file = await open(path, "wx");
    held.add(path);
    await file.writeFile(`${process.pid} ${hostname()}`).finally(() => file.close());
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "EEXIST") throw error;
    if (await isAbandoned(path)) await rm(path, { force: true });
    return false;
  }
}

/**
 * Whether the lock's holder is gone: its process on this machine has ended, or it has stopped updating the lock file. In a container, each
 * start may have the same process id as the previous start.
 */
async function isAbandoned(path: string): Promise<boolean> {
  const found = await stat(path).catch(() => null);
  if (found === null) return false;
  if (Date.now() - found.mtimeMs > abandonedMs) return true;
  const [pid = "", host] = (await readFile(path, "utf8").catch(() => "")).split(" ");
  // The lock file is empty right after its creation. It then contains no host name, so it counts as in use.
  if (host !== hostname()) return false;
  if (Number(pid) === process.pid) return !held.has(path);
  try {
    process.kill(Number(pid), 0);
    return false;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === "ESRCH";
  }
}
