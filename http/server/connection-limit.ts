// Limit on connections: keeps some of the process's open files for models, stores and logs. Connections beyond the limit are
// refused before the system runs out of files.
import { openFileLimit } from "../../runtime/host/open-files.ts";

/** Files that are kept for models, threads, stores and logs. */
const RESERVED_FILES = 128;

/** Fewest open files that a server starts with: the reserved ones, and as many for connections. */
export const MIN_OPEN_FILES = 2 * RESERVED_FILES;

/** Open files above which no connection is taken. */
export function fullAtFiles(): number {
  return Math.max(openFileLimit() - RESERVED_FILES, RESERVED_FILES);
}

/** Open files below which connections are taken again. */
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

  /** Counts one more connection; false where it is one too many. */
  add(): boolean {
    this.#count++;
    return this.#count <= this.#most;
  }

  delete(): void {
    this.#count--;
  }
}
