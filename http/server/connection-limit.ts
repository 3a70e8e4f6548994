// Connection limit: reserves some of the process's open files for models, stores and logs. Connections beyond the limit are
// refused before the process runs out of files.
import { openFileLimit } from "../../runtime/host/open-files.ts";

/** Files reserved for models, threads, stores and logs. */
const RESERVED_FILES = 128;

/** Minimum limit of open files: the reserved ones, and as many for connections. */
export const MIN_OPEN_FILES = 2 * RESERVED_FILES;

/** Open files above which connections are refused. */
export function fullAtFiles(): number {
  return Math.max(openFileLimit() - RESERVED_FILES, RESERVED_FILES);
}

/** Open files below which connections are accepted again. */
export function freeAtFiles(): number {
  return fullAtFiles() - RESERVED_FILES / 4;
}

/** Connections of all node servers of this process. */
export class ConnectionCount {
  readonly #most: number;
  #count = 0;

  constructor(most: number) {
    this.#most = most;
  }

  /** Counts a connection; false: the limit is exceeded. */
  add(): boolean {
    this.#count++;
    return this.#count <= this.#most;
  }

  delete(): void {
    this.#count--;
  }
}
