// Adapters of a model's worker: the loaded adapters, their content hashes, and their users (jobs and sequences). An adapter is
// freed when its last user is released. The step loop, its pooled jobs and the request preparation register users. The model
// actor loads and unloads adapters.
import type { AdapterHost } from "../../engines/engine.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { AdapterToLoad } from "../messages.ts";

/** Value used instead of a content hash for the base model. */
export const baseGeneration = "";

interface Loaded {
  readonly generation: string;
  readonly users: Set<object>;
  /** Settles when the adapter is freed; null while it accepts new users (jobs and sequences). */
  leaving: Promise<void> | null;
  onUnused: (() => void) | null;
}

/**
 * Callbacks. `onLeave`: an adapter no longer accepts users (jobs and sequences). `onFree`: an adapter has no users left and is
 * about to be freed.
 */
export interface AdapterWatch {
  onLeave(id: number): void;
  onFree(id: number): void;
}

export class Adapters {
  readonly #host: AdapterHost | null;
  readonly #watch: AdapterWatch;
  readonly #loaded = new Map<number, Loaded>();
  /** Promises of the loads in progress, by adapter id. These promises never reject. */
  readonly #arriving = new Map<number, Promise<void>>();
  #isClosed = false;

  constructor(host: AdapterHost | null, watch: AdapterWatch) {
    this.#host = host;
    this.#watch = watch;
  }

  /** Number of loaded adapters. */
  get count(): number {
    return this.#loaded.size;
  }

  /** Returns the content hash of an adapter; null = not loaded. The hash is the key of data stored for the adapter. */
  generationOf(id: number): string | null {
    return id === 0 ? baseGeneration : (this.#loaded.get(id)?.generation ?? null);
  }

  /** Loads an adapter. Throws unsupported, conflict, and the errors of the engine. */
  async load({ id, generation, path }: AdapterToLoad): Promise<void> {
    if (this.#host === null) {
      throw new ServerError(
        "unsupported",
        "this model takes no adapters; models that generate text take them with enable_lora",
      );
    }
    if (this.#loaded.has(id) || this.#arriving.has(id)) {
      throw new ServerError("conflict", `adapter ${id} is already loaded; expected a new number`);
    }
    const arrival = this.#arrive(this.#host.load(id, path), id, generation);
    this.#arriving.set(
      id,
      arrival.catch(() => {}),
    );
    await arrival;
  }

  /**
   * Unloads an adapter: accepts no new users (jobs and sequences), and frees the adapter when its last user is released. Resolves
   * when the adapter is freed, or at once if it is not loaded.
   */
  async unload(id: number): Promise<void> {
    // A load may still be in progress after its caller has stopped waiting.
    const arriving = this.#arriving.get(id);
    if (arriving !== undefined) await arriving;
    const loaded = this.#loaded.get(id);
    if (loaded === undefined) return;
    if (loaded.leaving === null) {
      this.#watch.onLeave(id);
      loaded.leaving = this.#free(id, loaded);
    }
    await loaded.leaving;
  }

  /**
   * Registers a job or sequence as a user of an adapter, until release() is called. Throws model_failed if the adapter is not
   * loaded or is being unloaded. An adapter that is being unloaded accepts a user only as the replacement of its current user
   * `earlier`.
   */
  use(id: number, user: object, earlier: object | null = null): void {
    if (id === 0) return;
    const loaded = this.#loaded.get(id);
    const isStaying = loaded?.leaving === null || (earlier !== null && loaded?.users.has(earlier));
    if (loaded === undefined || !isStaying) throw gone(id);
    loaded.users.add(user);
  }

  /** Removes a job or sequence from the users of an adapter. Does nothing if `user` is not registered. */
  release(id: number, user: object): void {
    if (id === 0) return;
    const loaded = this.#loaded.get(id);
    loaded?.users.delete(user);
    if (loaded?.users.size === 0) loaded.onUnused?.();
  }

  /** Stops freeing adapters. Call before the engine is disposed, because the engine then frees its adapters itself. */
  close(): void {
    this.#isClosed = true;
  }

  async #arrive(loading: Promise<void>, id: number, generation: string): Promise<void> {
    try {
      await loading;
      this.#loaded.set(id, { generation, users: new Set(), leaving: null, onUnused: null });
    } finally {
      this.#arriving.delete(id);
    }
  }

  async #free(id: number, loaded: Loaded): Promise<void> {
    // The adapter's last sequence may call release() during a step. The promise delays the unload until the step has ended.
    if (loaded.users.size > 0) {
      await new Promise<void>((resolve) => {
        loaded.onUnused = resolve;
      });
    }
    this.#loaded.delete(id);
    if (this.#isClosed) return;
    this.#watch.onFree(id);
    this.#host?.unload(id);
  }
}

/** Returns the error for an adapter that was freed too early. It is a server error, because the request held a lease on the adapter. */
function gone(id: number): ServerError {
  return new ServerError("model_failed", `adapter ${id} was freed while a request for it was on its way; try again`);
}
