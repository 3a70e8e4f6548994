// Compute lock: makes models that compute on the same cores take turns. llama.cpp's threads spin while they wait for
// each other, so two models with one thread per core keep preempting each other's threads. Running both models at once
// was measured 50 times slower than taking turns. A lock on a file works across processes, and the system releases it
// when its holder ends.
import { closeSync, openSync } from "node:fs";
import koffi from "koffi";
import { ServerError } from "../../runtime/errors.ts";

export interface ComputeLock {
  acquire(): void;
  release(): void;
  /** Closes the file, which releases the lock. */
  close(): void;
}

const exclusive = 2;
const unlock = 8;

/** Opens the lock at `path`; null if the system has no flock. Each model opens it separately. */
export function openComputeLock(path: string): ComputeLock | null {
  if (process.platform === "win32") return null;
  const libc = koffi.load(process.platform === "darwin" ? "libSystem.dylib" : null);
  const flock = libc.func("flock", "int", ["int", "int"]) as (descriptor: number, operation: number) => number;
  const descriptor = openSync(path, "a", 0o600);
  return {
    acquire: () => {
      while (flock(descriptor, exclusive) !== 0) {
        // Retry if a signal interrupted the wait; any other error is permanent.
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
