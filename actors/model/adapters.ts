// Owns the adapters of a model place: which are loaded, what their generations are, and who uses each, so that one is freed
// when nobody does any more and not before. The step loop, its pools and the intake say who uses what; the model actor has
// adapters loaded and freed.
import type { AdapterHost } from "../../engines/engine.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { AdapterToLoad } from "../messages.ts";

/** The base model has no adapter, and so no generation of one. */
export const baseGeneration = "";

interface Loaded {
  readonly generation: string;
  readonly users: Set<object>;
  /** Settles when it is freed; null while it may be used. */
  leaving: Promise<void> | null;
  onUnused: (() => void) | null;
}

/** Told of adapters on their way out: when nobody else may use one, and when nobody does, just before the engine frees it. */
export interface AdapterWatch {
  onLeave(id: number): void;
  onFree(id: number): void;
}

export class Adapters {
  readonly #host: AdapterHost | null;
  readonly #watch: AdapterWatch;
  readonly #loaded = new Map<number, Loaded>();
  /** Those that the engine is at; none rejects. */
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

  /** What names an adapter's content wherever it is kept; null where it is not loaded. */
  generationOf(id: number): string | null {
    return id === 0 ? baseGeneration : (this.#loaded.get(id)?.generation ?? null);
  }

  /** Makes an adapter one that can be used. Throws unsupported, conflict, and what the engine does. */
  async load({ id, generation, path }: AdapterToLoad): Promise<void> {
    if (this.#host === null) {
      throw new ServerError(
        "unsupported",
        "this model takes no adapters; enable_lora lets one that generates text take them",
      );
    }
    if (this.#loaded.has(id) || this.#arriving.has(id)) {
      throw new ServerError("conflict", `adapter ${id} is loaded already; expected a new number`);
    }
    const arrival = this.#arrive(this.#host.load(id, path), id, generation);
    this.#arriving.set(
      id,
      arrival.catch(() => {}),
    );
    await arrival;
  }

  /** Lets nobody else use an adapter, and frees it once nobody does; settles then. Of one that is gone nothing is left to do. */
  async unload(id: number): Promise<void> {
    // Who had it loaded may have given up waiting for it.
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
   * Says that `user` uses an adapter, until release(). Throws model_failed where it is not there, or about to go; one that
   * follows `earlier`, which uses it already, may have it all the same.
   */
  use(id: number, user: object, earlier: object | null = null): void {
    if (id === 0) return;
    const loaded = this.#loaded.get(id);
    const isStaying = loaded?.leaving === null || (earlier !== null && loaded?.users.has(earlier));
    if (loaded === undefined || !isStaying) throw gone(id);
    loaded.users.add(user);
  }

  /** Does nothing where `user` does not use it. */
  release(id: number, user: object): void {
    if (id === 0) return;
    const loaded = this.#loaded.get(id);
    loaded?.users.delete(user);
    if (loaded?.users.size === 0) loaded.onUnused?.();
  }

  /** The engine is about to be disposed, and its adapters with it: it is asked for nothing any more, whoever lets go of one. */
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
    // What is awaited goes on between two steps: a step is synchronous, and its last row may be what released it.
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

/** Requests hold leases on what they name, so it is not they who are wrong. */
function gone(id: number): ServerError {
  return new ServerError("model_failed", `adapter ${id} was freed while a request for it was on its way; try again`);
}
