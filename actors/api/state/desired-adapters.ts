// Desired adapters: the LoRA adapters that clients have loaded or unloaded over HTTP on any replica, kept in the shared state
// (state_url). The state thread implements the interface; actors/lora-registry makes each replica load and unload accordingly.

export interface DesiredAdapter {
  /** Id of the model. */
  readonly model: string;
  readonly alias: string;
  /** Path as sent by the client, which must exist on each replica; null = the alias was unloaded. */
  readonly path: string | null;
  /** Content hash of the adapter; null = the alias was unloaded. */
  readonly generation: string | null;
}

/** Every method throws storage_unavailable. */
export interface DesiredAdapters {
  list(): Promise<readonly DesiredAdapter[]>;
  /** Stores the desired adapter of an alias. With `isNew`, stores it only if the alias is not loaded, and otherwise returns false. */
  set(change: { readonly adapter: DesiredAdapter; readonly isNew: boolean }): Promise<boolean>;
  /** Calls the listener after changes by any replica, and when the connection to the shared state is restored. */
  watch(listener: () => void): void;
}
