// Connection limit: reserves some of the process's open files for models, stores and logs. It rejects further connections
// before the process runs out of files.
import { openFileLimit } from "../../runtime/host/open-files.ts";

/** Files reserved for models, threads, stores and logs. */
const RESERVED_FILES = 128;

/** Minimum open-file limit of the process (ulimit -n): the reserved files, and the same number for connections. */
export const MIN_OPEN_FILES = 2 * RESERVED_FILES;

/** Number of open files above which connections are rejected. */
export function fullAtFiles(): number {
  return Math.max(openFileLimit() - RESERVED_FILES, RESERVED_FILES);
}

/** Number of open files below which connections are accepted again. */
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
