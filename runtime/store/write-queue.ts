// Write queue: changes that wait for a transaction. All changes of one turn of the event loop share a transaction.
// Therefore, they wait for the disk only once in total.
import { ServerError } from "../errors.ts";
import { STEP_BYTES } from "./parts.ts";
import type { Tables } from "./tables.ts";

/** Maximum number of changes in one transaction, which takes about 20 ms. */
const MOST_WRITES = 32;

interface Write {
  readonly apply: () => void;
  readonly bytes: number;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

export class WriteQueue {
  readonly #tables: Tables;
  #writes: Write[] = [];

  constructor(tables: Tables) {
    this.#tables = tables;
  }

  /**
   * Queues a change of about `bytes` bytes. Resolves when it is written. To reject the change, `apply` throws a ServerError
   * before it changes anything. `apply` may be called more than once; only the last call counts.
   */
  add(bytes: number, apply: () => void): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#writes.push({ apply, bytes, resolve, reject });
      if (this.#writes.length === 1) setImmediate(() => this.#flush());
    });
  }

  /** Writes waiting changes, up to the limits of one transaction. */
  #flush(): void {
    if (this.#writes.length === 0) return;
    let bytes = 0;
    const count = this.#writes.findIndex((write, i) => {
      bytes += write.bytes;
      return i > 0 && (i === MOST_WRITES || bytes > STEP_BYTES);
    });
    this.#write(this.#writes.splice(0, count < 0 ? this.#writes.length : count));
    if (this.#writes.length > 0) setImmediate(() => this.#flush());
  }

  #write(writes: readonly Write[]): void {
    try {
      const refusals = this.#tables.transaction(() => writes.map(({ apply }) => refusalOf(apply)));
      for (const [i, { resolve, reject }] of writes.entries()) {
        const refusal = refusals[i];
        if (refusal === null) resolve();
        else reject(refusal);
      }
    } catch (fault) {
      // A change that does not fit on a full disk must not fail the others. So each change is
      // written in a separate transaction.
      if (writes.length > 1) for (const write of writes) this.#write([write]);
      else writes[0]?.reject(fault);
    }
  }
}

/**
 * Applies a change. Returns the ServerError that rejected the change; null if the change was made. Other errors abort the
 * transaction.
 */
function refusalOf(apply: () => void): ServerError | null {
  try {
    apply();
    return null;
  } catch (error) {
    if (error instanceof ServerError) return error;
    throw error;
  }
}
