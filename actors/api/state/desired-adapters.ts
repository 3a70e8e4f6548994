// Desired adapters: the LoRA adapters that clients have loaded or unloaded over HTTP on any replica, in the shared state (state_url).
// The state thread implements it; actors/lora-registry makes each replica follow it.

export interface DesiredAdapter {
  /** Id of the model. */
  readonly model: string;
  readonly alias: string;
  /** Path as sent by the client, which must exist on each replica; null: the alias was unloaded. */
  readonly path: string | null;
  /** Content hash of the adapter; null: the alias was unloaded. */
  readonly generation: string | null;
}

/** Every method throws storage_unavailable. */
export interface DesiredAdapters {
  list(): Promise<readonly DesiredAdapter[]>;
  /** Stores what is desired of an alias. `isNew`: only if the alias is not loaded; returns false if it is. */
  set(change: { readonly adapter: DesiredAdapter; readonly isNew: boolean }): Promise<boolean>;
  /** Calls the listener after changes by any replica, and when the shared state is back after a loss. */
  watch(listener: () => void): void;
}
