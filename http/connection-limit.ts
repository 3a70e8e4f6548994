// Limit on connections: some files of the process are kept for what is no connection, so that the server can still open its
// models, stores and logs, and never asks the system for a connection that it cannot have.
import { openFileLimit } from "../runtime/open-files.ts";

/** Files that are kept for models, threads, stores and logs. */
const RESERVED_FILES = 128;

/** A server needs as many: its own files, and room for as many connections. */
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

  /** False where there are as many as may be. */
  add(): boolean {
    this.#count++;
    return this.#count <= this.#most;
  }

  delete(): void {
    this.#count--;
  }
}
