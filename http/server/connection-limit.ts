// Connection limit: keeps some of the process's file descriptors free for models, stores and logs, by rejecting connections
// before the process runs out of descriptors.
import { openFileLimit } from "../../runtime/host/open-files.ts";

/** Number of file descriptors reserved for models, threads, stores and logs. */
const RESERVED_FILES = 128;

/** Minimum open-file limit of the process (ulimit -n): the reserved descriptors, and as many for connections. */
export const MIN_OPEN_FILES = 2 * RESERVED_FILES;

/** Returns the number of open files above which connections are rejected. */
export function fullAtFiles(): number {
  return Math.max(openFileLimit() - RESERVED_FILES, RESERVED_FILES);
}

/** Returns the number of open files below which connections are accepted again. */
export function freeAtFiles(): number {
  return fullAtFiles() - RESERVED_FILES / 4;
}

/** Counter of the connections of all node:http servers in this process. */
export class ConnectionCount {
  readonly #most: number;
  #count = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Counts a connection. Returns false if the limit is exceeded. */
  add(): boolean {
    this.#count++;
    return this.#count <= this.#most;
  }

  delete(): void {
    this.#count--;
  }
}
