// Adapters of a model place: which are loaded, their revisions, and their users, so that an adapter is freed when it has no
// user left. The step loop, its pools and the request preparation register users; the model actor loads and unloads.
import type { AdapterHost } from "../../engines/engine.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { AdapterToLoad } from "../messages.ts";

/** Stands for the base model, which has no revision. */
export const baseGeneration = "";

interface Loaded {
  readonly generation: string;
  readonly users: Set<object>;
  /** Settles when the adapter is freed; null while it may be used. */
  leaving: Promise<void> | null;
  onUnused: (() => void) | null;
}

/** Told when an adapter takes no further users, and when it has none left, just before the engine frees it. */
export interface AdapterWatch {
  onLeave(id: number): void;
  onFree(id: number): void;
}

export class Adapters {
  readonly #host: AdapterHost | null;
  readonly #watch: AdapterWatch;
  readonly #loaded = new Map<number, Loaded>();
  /** Loads in progress; none rejects. */
  readonly #arriving = new Map<number, Promise<void>>();
  #isClosed = false;

  constructor(host: AdapterHost | null, watch: AdapterWatch) {
    this.#host = host;
    this.#watch = watch;
  }

  /** Adapters in memory. */
  get count(): number {
    return this.#loaded.size;
  }

  /** Revision of an adapter's content, the key of what is stored for it; null if it is not loaded. */
  generationOf(id: number): string | null {
    return id === 0 ? baseGeneration : (this.#loaded.get(id)?.generation ?? null);
  }

  /** Loads an adapter. Throws unsupported, conflict, and what the engine throws. */
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

  /** Refuses further users of an adapter, frees it once it has none, and settles then; at once if it is gone. */
  async unload(id: number): Promise<void> {
    // The caller of load() may have given up while the load continues.
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
   * Registers a user of an adapter, until release(). Throws model_failed if the adapter is not loaded or is leaving; a
   * leaving one still accepts a user that takes over from its user `earlier`.
   */
  use(id: number, user: object, earlier: object | null = null): void {
    if (id === 0) return;
    const loaded = this.#loaded.get(id);
    const isStaying = loaded?.leaving === null || (earlier !== null && loaded?.users.has(earlier));
    if (loaded === undefined || !isStaying) throw gone(id);
    loaded.users.add(user);
  }

  /** Does nothing if `user` does not use it. */
  release(id: number, user: object): void {
    if (id === 0) return;
    const loaded = this.#loaded.get(id);
    loaded?.users.delete(user);
    if (loaded?.users.size === 0) loaded.onUnused?.();
  }

  /** The engine is about to be disposed with its adapters: none is freed any more. */
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
    // Awaited, so that the engine frees it between two steps: a row of the current one may have released it.
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

/** Requests hold leases on their adapters, so this is no fault of the request. */
function gone(id: number): ServerError {
  return new ServerError("model_failed", `adapter ${id} was freed while a request for it was on its way; try again`);
}
