// Owns taking turns between models that compute on the same cores. llama.cpp's threads spin while they wait for each
// other, so two models with a thread a core each keep preempting one another's partners: measured, two at once ran 50
// times slower than in turns. A lock on a file works across processes and is let go when its holder dies.
import { closeSync, openSync } from "node:fs";
import koffi from "koffi";
import { ServerError } from "../../runtime/errors.ts";

export interface ComputeLock {
  acquire(): void;
  release(): void;
  /** Lets go of the file. */
  close(): void;
}

const exclusive = 2;
const unlock = 8;

/** The lock at `path`; null where the system has no such locks. Every model opens it for itself. */
export function openComputeLock(path: string): ComputeLock | null {
  if (process.platform === "win32") return null;
  const libc = koffi.load(process.platform === "darwin" ? "libSystem.dylib" : null);
  const flock = libc.func("flock", "int", ["int", "int"]) as (descriptor: number, operation: number) => number;
  const descriptor = openSync(path, "a", 0o600);
  return {
    acquire: () => {
      while (flock(descriptor, exclusive) !== 0) {
        // A signal may interrupt the wait; anything else would fail for ever.
        const errno = koffi.errno();
        if (errno === koffi.os.errno.EINTR) continue;
        throw new ServerError("model_failed", `"${path}" cannot be locked: flock failed with errno ${errno}`);
      }
    },
    release: () => {
      flock(descriptor, unlock);
    },
    close: () => closeSync(descriptor),
  };
}
