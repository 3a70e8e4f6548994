// AdapterTable: the aliases of one model's adapters, the adapter version that each alias points to, the leases on the versions,
// and the limits. The table only holds data: it never waits, and uses neither files nor the engine. ModelAdapters carries out its
// decisions.
//
// A version is in the table while an alias points to it (live), or while it has no alias but a request holds a lease on it
// (retired). The call that removes the last alias or lease returns the version, which the caller must then free.
import assert from "node:assert";
import type { AdapterLimits } from "../../engines/engine.ts";
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import type { AdapterSelector } from "../../engines/generation.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { AdapterEntry } from "../api/inference.ts";
import type { AdapterListing, LoadedAdapter } from "../api/lora-adapters.ts";
import { maxAliasBytes } from "../api/lora-alias.ts";
import type { AdapterVersion, Pointed, Wanted } from "./adapter-version.ts";

const maxAliases = 1024;

/** Maximum number of aliases that an error message lists. */
const namedAliases = 16;
/** Maximum number of characters of a client's string that an error message quotes; no valid alias is longer. */
const quotedLength = maxAliasBytes;

interface AliasEntry {
  readonly wanted: Wanted;
  readonly resident: Resident;
  /** Time at which the alias was set, in Unix seconds. */
  readonly createdAt: number;
}

interface Resident extends AdapterVersion {
  readonly aliases: Set<string>;
  leases: number;
}

export class AdapterTable {
  readonly #model: string;
  readonly #limits: AdapterLimits;
  readonly #aliases = new Map<string, AliasEntry>();
  /** Versions in memory, by content hash (`generation` in the HTTP API). */
  readonly #residents = new Map<string, Resident>();
  /** Versions that the engine rejected after a restart. Requests may still hold leases on them. */
  readonly #lost = new WeakSet<AdapterVersion>();
  /** Cached result of entries(), which every request calls. */
  #entries: readonly AdapterEntry[] | null = null;

  constructor(model: string, limits: AdapterLimits) {
    this.#model = model;
    this.#limits = limits;
  }

  /**
   * Checks that the alias can be set now. Throws lora_adapter_already_loaded, lora_adapter_not_found, lora_generation_mismatch,
   * lora_alias_limit_exceeded.
   */
  check({ alias, replace, expectedGeneration }: Wanted): void {
    const entry = this.#aliases.get(alias);
    if (expectedGeneration !== null) this.#expect(alias, expectedGeneration);
    if (entry !== undefined && !replace) {
      throw new ServerError(
        "lora_adapter_already_loaded",
        `adapter "${alias}" is already loaded, as generation ${entry.resident.prepared.generation}; set load_inplace to replace it`,
        { param: "lora_name" },
      );
    }
    if (entry === undefined && this.#aliases.size >= maxAliases) {
      throw new ServerError(
        "lora_alias_limit_exceeded",
        `model "${this.#model}" has ${maxAliases} adapter names, which is the limit; unload one first`,
        { param: "lora_name" },
      );
    }
  }

  /** Makes the checks of check() and checks the limits. Also throws lora_adapter_limit_exceeded, lora_byte_limit_exceeded. */
  checkRoom(wanted: Wanted, { generation, bytes }: PreparedAdapter): void {
    this.check(wanted);
    const { maxAdapters, maxBytes } = this.#limits;
    const resident = this.#residents.get(generation);
    if (this.#liveAfter(wanted.alias, generation) > maxAdapters) {
      throw new ServerError(
        "lora_adapter_limit_exceeded",
        `model "${this.#model}" has ${this.#liveCount()} of at most ${maxAdapters} adapters (lora_max_adapters); unload one first`,
      );
    }
    const residentBytes = this.residentBytes;
    if (resident === undefined && residentBytes + bytes > maxBytes) {
      throw new ServerError(
        "lora_byte_limit_exceeded",
        `the adapter takes ${bytes} bytes, and ${residentBytes} of at most ${maxBytes} (lora_max_bytes) are in use; unload an adapter, and let its requests end`,
      );
    }
  }

  /** Returns the version with a content hash; null = not in memory. */
  find(generation: string): AdapterVersion | null {
    return this.#residents.get(generation) ?? null;
  }

  /** Points an alias to a version, replacing the version that it pointed to. Throws the errors of checkRoom(). */
  point(wanted: Wanted, version: AdapterVersion, createdAt: number): Pointed {
    const { prepared } = version;
    this.checkRoom(wanted, prepared);
    const resident = this.#residents.get(prepared.generation) ?? { ...version, aliases: new Set(), leases: 0 };
    assert(resident.id === version.id, `generation ${prepared.generation} is already loaded, as ${resident.id}`);
    const replaced = this.#aliases.get(wanted.alias)?.resident;
    replaced?.aliases.delete(wanted.alias);
    resident.aliases.add(wanted.alias);
    this.#entries = null;
    this.#residents.set(prepared.generation, resident);
    this.#aliases.set(wanted.alias, { wanted, resident, createdAt });
    return {
      loaded: loadedAdapter(wanted, resident),
      replaced: replaced?.prepared.generation ?? null,
      freed: replaced === undefined ? null : this.#unneeded(replaced),
    };
  }

  /** Removes an alias. Throws lora_adapter_not_found, lora_generation_mismatch. */
  remove(alias: string, expectedGeneration: string | null): { was: LoadedAdapter; freed: AdapterVersion | null } {
    const { wanted, resident } = this.#expect(alias, expectedGeneration);
    this.#aliases.delete(alias);
    this.#entries = null;
    resident.aliases.delete(alias);
    return { was: loadedAdapter(wanted, resident), freed: this.#unneeded(resident) };
  }

  /** Adds a lease on the selected version. Throws invalid_value if no version matches. */
  lease(selector: AdapterSelector): AdapterVersion {
    const resident = this.#selected(selector);
    if (resident === undefined) throw this.#unknown(selector);
    resident.leases++;
    return resident;
  }

  /** Removes a version and its aliases. Returns the aliases. Releasing remaining leases on the version then has no effect. */
  lose(version: AdapterVersion): readonly string[] {
    const resident = this.#residents.get(version.prepared.generation);
    if (resident === undefined || resident.id !== version.id) return [];
    this.#residents.delete(resident.prepared.generation);
    this.#lost.add(resident);
    for (const alias of resident.aliases) this.#aliases.delete(alias);
    this.#entries = null;
    return [...resident.aliases];
  }

  /** Removes a lease. Returns the version if it is no longer needed, else null. */
  release(version: AdapterVersion): AdapterVersion | null {
    if (this.#lost.has(version)) return null;
    const { id, prepared } = version;
    const resident = this.#residents.get(prepared.generation);
    assert(resident?.id === id && resident.leases > 0, `a lease on adapter ${id} was released that is not held`);
    resident.leases--;
    return this.#unneeded(resident);
  }

  /** Returns all live and retired versions. The engine has loaded these, or must load them after a restart. */
  versions(): readonly AdapterVersion[] {
    return [...this.#residents.values()];
  }

  /** Returns whether the version is live or retired. */
  has({ id, prepared }: AdapterVersion): boolean {
    return this.#residents.get(prepared.generation)?.id === id;
  }

  aliasesOf({ prepared }: AdapterVersion): readonly string[] {
    return [...(this.#residents.get(prepared.generation)?.aliases ?? [])];
  }

  entries(): readonly AdapterEntry[] {
    this.#entries ??= [...this.#aliases].map(([alias, { resident, createdAt }]) => {
      return { alias, generation: resident.prepared.generation, createdAt };
    });
    return this.#entries;
  }

  list(): AdapterListing {
    const generations = [...this.#residents.values()].map(({ prepared, aliases, leases }) => {
      const { generation, rank, bytes } = prepared;
      return { generation, aliases: [...aliases], rank, bytes, retired: aliases.size === 0, activeLeases: leases };
    });
    const adapters = [...this.#aliases.values()].map(({ wanted, resident }) => loadedAdapter(wanted, resident));
    return { adapters, generations, residentBytes: this.residentBytes, ...this.#limits };
  }

  get residentBytes(): number {
    let sum = 0;
    for (const { prepared } of this.#residents.values()) sum += prepared.bytes;
    return sum;
  }

  #expect(alias: string, expectedGeneration: string | null): AliasEntry {
    const entry = this.#aliases.get(alias);
    if (entry === undefined) {
      throw new ServerError(
        "lora_adapter_not_found",
        `model "${this.#model}" has no adapter "${alias}"; ${this.#available()}`,
        { param: "lora_name" },
      );
    }
    const { generation } = entry.resident.prepared;
    if (expectedGeneration !== null && generation !== expectedGeneration) {
      throw new ServerError(
        "lora_generation_mismatch",
        `adapter "${alias}" is generation ${generation}, not ${expectedGeneration}; list the adapters and decide again`,
        { param: "expected_generation" },
      );
    }
    return entry;
  }

  #selected(selector: AdapterSelector): Resident | undefined {
    if ("alias" in selector) return this.#aliases.get(selector.alias)?.resident;
    const resident = this.#residents.get(selector.generation);
    return resident !== undefined && resident.aliases.size > 0 ? resident : undefined;
  }

  #unknown(selector: AdapterSelector): ServerError {
    const [what, name] = "alias" in selector ? ["", selector.alias] : [" of generation", selector.generation];
    const message = `model "${this.#model}" has no adapter${what} "${name.slice(0, quotedLength)}"; ${this.#available()}`;
    return new ServerError("invalid_value", message, { param: "adapter" });
  }

  /** Returns a list of the aliases for an error message. */
  #available(): string {
    if (this.#aliases.size === 0) return "none is loaded";
    const named = [...this.#aliases.keys()].slice(0, namedAliases).map((alias) => `"${alias}"`);
    const more = this.#aliases.size - named.length;
    return `it has ${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
  }

  #liveCount(): number {
    let count = 0;
    for (const { aliases } of this.#residents.values()) if (aliases.size > 0) count++;
    return count;
  }

  /** Returns what the number of live versions would be if the alias pointed to the version with this hash. */
  #liveAfter(alias: string, generation: string): number {
    const replaced = this.#aliases.get(alias)?.resident;
    const isLive = (this.#residents.get(generation)?.aliases.size ?? 0) > 0;
    const retires =
      replaced !== undefined && replaced.prepared.generation !== generation && replaced.aliases.size === 1;
    return this.#liveCount() + (isLive ? 0 : 1) - (retires ? 1 : 0);
  }

  #unneeded(resident: Resident): AdapterVersion | null {
    if (resident.aliases.size > 0 || resident.leases > 0) return null;
    this.#residents.delete(resident.prepared.generation);
    return resident;
  }
}

function loadedAdapter({ alias, source, revision }: Wanted, { prepared }: AdapterVersion): LoadedAdapter {
  const { generation, rank, bytes } = prepared;
  return { alias, source, revision, generation, rank, bytes };
}
