// Stores by name. All stores are in one LMDB environment. Each store has its own tables and its own limits.
import type { Store, StoreLimits } from "./store.ts";
import { TableStore } from "./table-store.ts";
import type { Table, Tables } from "./tables.ts";

export class Stores {
  readonly #tables: Tables;
  readonly #unprefixed: string;
  #openCount = 0;

  /** `unprefixed`: name of the store whose tables have no prefix, because it existed before stores had names. */
  constructor(tables: Tables, unprefixed: string) {
    this.#tables = tables;
    this.#unprefixed = unprefixed;
  }

  /** Opens a store. Call only once for each name. The tables close when the last open store closes. */
  store<Head>(name: string, limits: StoreLimits): Store<Head> {
    this.#openCount++;
    const prefix = name === this.#unprefixed ? "" : `${name}/`;
    return new TableStore<Head>(new StoreTables(this.#tables, prefix, () => this.#closed()), limits);
  }

  async #closed(): Promise<void> {
    this.#openCount--;
    if (this.#openCount === 0) await this.#tables.close();
  }
}

class StoreTables implements Tables {
  readonly #tables: Tables;
  readonly #prefix: string;
  readonly close: () => Promise<void>;

  constructor(tables: Tables, prefix: string, close: () => Promise<void>) {
    this.#tables = tables;
    this.#prefix = prefix;
    this.close = close;
  }

  table(name: string): Table {
    return this.#tables.table(this.#prefix + name);
  }

  refresh(): void {
    this.#tables.refresh();
  }

  view<T>(read: () => T): T {
    return this.#tables.view(read);
  }

  transaction<T>(change: () => T): T {
    return this.#tables.transaction(change);
  }
}
