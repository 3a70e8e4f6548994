// Owns the books of one model's adapters: which alias stands for which generation, who holds a lease on one, and what the
// limits allow. Pure: no waiting, no files, no engine. Changed by ModelAdapters alone, which carries out what it decides.
//
// A generation is in the table while an alias stands for it (live) or a lease is held on it (then it is retired). Whatever
// takes away the last of them returns it: from then on it is the caller's to free, and unknown here.
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

/** How many aliases an error names. */
const namedAliases = 16;
/** Of a client's own words in an error: no alias is longer. */
const quotedLength = maxAliasBytes;

interface AliasEntry {
  readonly wanted: Wanted;
  readonly resident: Resident;
  /** Unix seconds. */
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
  /** By generation. */
  readonly #residents = new Map<string, Resident>();
  /** What leases may still be held on though it is gone. */
  readonly #lost = new WeakSet<AdapterVersion>();
  /** Made when it is asked for, which every request does. */
  #entries: readonly AdapterEntry[] | null = null;

  constructor(model: string, limits: AdapterLimits) {
    this.#model = model;
    this.#limits = limits;
  }

  /** Whether the alias is free for it now. Throws the codes of the alias's state, and lora_alias_limit_exceeded. */
  check({ alias, replace, expectedGeneration }: Wanted): void {
    const entry = this.#aliases.get(alias);
    if (expectedGeneration !== null) this.#expect(alias, expectedGeneration);
    if (entry !== undefined && !replace) {
      throw new ServerError(
        "lora_adapter_already_loaded",
        `adapter "${alias}" is loaded already, as generation ${entry.resident.prepared.generation}; set load_inplace to replace it`,
        { param: "lora_name" },
      );
    }
    if (entry === undefined && this.#aliases.size >= maxAliases) {
      throw new ServerError(
        "lora_alias_limit_exceeded",
        `model "${this.#model}" has ${maxAliases} adapter names, the most there can be; unload one first`,
        { param: "lora_name" },
      );
    }
  }

  /** As check(), and whether there is room: throws lora_adapter_limit_exceeded, lora_byte_limit_exceeded. */
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
        `the adapter takes ${bytes} bytes, and ${residentBytes} of at most ${maxBytes} (lora_max_bytes) are taken; unload one first, and let the requests that use it end`,
      );
    }
  }

  /** The content, where it is in memory already. */
  find(generation: string): AdapterVersion | null {
    return this.#residents.get(generation) ?? null;
  }

  /** Has the alias stand for a generation from now on. Throws as checkRoom(). */
  point(wanted: Wanted, generation: AdapterVersion, createdAt: number): Pointed {
    const { prepared } = generation;
    this.checkRoom(wanted, prepared);
    const resident = this.#residents.get(prepared.generation) ?? { ...generation, aliases: new Set(), leases: 0 };
    assert(resident.id === generation.id, `generation ${prepared.generation} is loaded already, as ${resident.id}`);
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

  /** Forgets an alias. Throws lora_adapter_not_found, lora_generation_mismatch. */
  remove(alias: string, expectedGeneration: string | null): { was: LoadedAdapter; freed: AdapterVersion | null } {
    const { wanted, resident } = this.#expect(alias, expectedGeneration);
    this.#aliases.delete(alias);
    this.#entries = null;
    resident.aliases.delete(alias);
    return { was: loadedAdapter(wanted, resident), freed: this.#unneeded(resident) };
  }

  /** One lease more on what the selector stands for now. Throws invalid_value. */
  lease(selector: AdapterSelector): AdapterVersion {
    const resident = this.#selected(selector);
    if (resident === undefined) throw this.#unknown(selector);
    resident.leases++;
    return resident;
  }

  /** It is not to be had any more: no alias stands for it, and leases on it come to nothing. Returns its aliases. */
  lose(generation: AdapterVersion): readonly string[] {
    const resident = this.#residents.get(generation.prepared.generation);
    if (resident === undefined || resident.id !== generation.id) return [];
    this.#residents.delete(resident.prepared.generation);
    this.#lost.add(resident);
    for (const alias of resident.aliases) this.#aliases.delete(alias);
    this.#entries = null;
    return [...resident.aliases];
  }

  /** One lease less. Returns the generation if nobody needs it any more. */
  release(generation: AdapterVersion): AdapterVersion | null {
    if (this.#lost.has(generation)) return null;
    const { id, prepared } = generation;
    const resident = this.#residents.get(prepared.generation);
    assert(resident?.id === id && resident.leases > 0, `a lease on adapter ${id} was released that nobody holds`);
    resident.leases--;
    return this.#unneeded(resident);
  }

  /** Every generation that is in memory, or to be there: live or leased. */
  generations(): readonly AdapterVersion[] {
    return [...this.#residents.values()];
  }

  /** Whether it is still needed. */
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
        `adapter "${alias}" stands for generation ${generation}, not for ${expectedGeneration}; look at what it is now and decide again`,
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

  /** The aliases there are, as many as a message bears. */
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

  /** How many generations are live once the alias stands for this one. */
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
