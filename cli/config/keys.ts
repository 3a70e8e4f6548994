// Table of configuration keys: the only source of flags, TOML keys, validation, the Config type, the help text and
// docs/configuration.md. The key `maxSeqs` is `--max-seqs` as a flag and `max_seqs` in a file. The keys are defined in the
// folder keys/.
import assert from "node:assert/strict";
import type { Command, Key } from "./key.ts";
import { agenticKeys, sandboxKeys } from "./keys/agentic.ts";
import { benchKeys, tuneKeys } from "./keys/bench.ts";
import { diffusionKeys } from "./keys/diffusion.ts";
import { generalKeys, runKeys } from "./keys/general.ts";
import {
  adapterKeys,
  deviceKeys,
  embeddingKeys,
  formatKeys,
  modelKeys,
  multimodalKeys,
  quantizationKeys,
} from "./keys/models.ts";
import { remoteKeys } from "./keys/remote.ts";
import { samplingKeys } from "./keys/sampling.ts";
import { searchKeys } from "./keys/search.ts";
import { pagedAttnKeys, serverKeys } from "./keys/server.ts";
import { speechKeys } from "./keys/speech.ts";
import { troupeKeys } from "./keys/troupe.ts";

/** Keys by group, in the order of the help text. */
export const keys = {
  run: runKeys,
  general: generalKeys,
  agentic: agenticKeys,
  models: modelKeys,
  sampling: samplingKeys,
  format: formatKeys,
  embedding: embeddingKeys,
  adapter: adapterKeys,
  quantization: quantizationKeys,
  device: deviceKeys,
  multimodal: multimodalKeys,
  remote: remoteKeys,
  server: serverKeys,
  pagedAttn: pagedAttnKeys,
  sandbox: sandboxKeys,
  search: searchKeys,
  speech: speechKeys,
  diffusion: diffusionKeys,
  troupe: troupeKeys,
  bench: benchKeys,
  tune: tuneKeys,
};

export type GroupName = keyof typeof keys;

interface Group {
  readonly title: string;
  /** Section of the group in a TOML file; null if its keys cannot be set in a file. */
  readonly section: string | null;
  /** Commands that accept the group's keys; if absent, all. */
  readonly commands?: readonly Command[];
}

export const groups: Readonly<Record<GroupName, Group>> = {
  run: { title: "Conversation", section: null, commands: ["run"] },
  general: { title: "General", section: "" },
  agentic: { title: "Tools", section: "", commands: ["serve", "run"] },
  models: { title: "Models", section: "models" },
  sampling: { title: "Sampling of the models", section: "models.sampling", commands: ["serve", "run"] },
  format: { title: "Format of the models", section: "models.format" },
  embedding: { title: "Embeddings of the models", section: "models.embedding" },
  adapter: { title: "Adapters of the models", section: "models.adapter" },
  quantization: { title: "Quantization of the models", section: "models.quantization" },
  device: { title: "Device of the models", section: "models.device" },
  multimodal: { title: "Images, video and audio of the models", section: "models.multimodal" },
  remote: { title: "Models on other servers", section: "models.remote", commands: ["serve", "run"] },
  server: { title: "Server", section: "server", commands: ["serve"] },
  pagedAttn: { title: "KV cache", section: "paged_attn" },
  sandbox: { title: "Sandbox", section: "sandbox", commands: ["serve", "run"] },
  search: { title: "Web search", section: "search", commands: ["serve", "run"] },
  speech: { title: "Speech models", section: "speech", commands: ["serve"] },
  diffusion: { title: "Diffusion models", section: "diffusion", commands: ["serve"] },
  troupe: { title: "troupe's own settings", section: "troupe" },
  bench: { title: "Benchmark", section: null, commands: ["bench"] },
  tune: { title: "Tuning", section: null, commands: ["tune"] },
};

export const groupNames = Object.keys(groups) as readonly GroupName[];

/** Returns the header of a section in a TOML file. */
export function sectionHeader(section: string): string {
  return section === "models" ? "[[models]]" : `[${section}]`;
}

/** Returns whether the keys of a group may differ between models. */
export function isPerModel(group: GroupName): boolean {
  return groups[group].section?.split(".")[0] === "models";
}

/** Key with all its names. */
export interface KeyEntry {
  readonly group: GroupName;
  /** Name of the setting in Config, such as `maxSeqs`. */
  readonly field: string;
  /** Main name of the key, as in a settings file. */
  readonly name: string;
  /** All names of the key in a settings file; empty if the key cannot be set in a file. */
  readonly names: readonly string[];
  readonly flag: string;
  /** All long flags that set the key; empty if the key has no flag. */
  readonly flags: readonly string[];
  readonly shortFlag: string | null;
  /** Environment variables that set the key, highest precedence first. */
  readonly variables: readonly string[];
  readonly key: Key;
}

function entryOf(group: GroupName, field: string, key: Key): KeyEntry {
  const name = field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const flag = key.flag ?? flagOf(name);
  const others = key.otherNames ?? [];
  const isInFiles = groups[group].section !== null && key.only !== "environment";
  const names = isInFiles ? [name, ...others] : [];
  const hasFlag = key.only === undefined;
  const flags = hasFlag ? [flag, ...others.map(flagOf)] : [];
  const shortFlag = (hasFlag ? key.alias : null) ?? null;
  const variables = key.only === "file" ? [] : [variableOf(flag), ...[key.environment ?? []].flat()];
  return { group, field, name, names, flag, flags, shortFlag, variables, key };
}

function flagOf(name: string): string {
  return `--${name.replaceAll("_", "-")}`;
}

/** Prefix of the environment variables that contain settings. */
export const variablePrefix = "TROUPE_";

/** Returns the environment variable that corresponds to a flag: `--max-seqs` is TROUPE_MAX_SEQS. */
function variableOf(flag: string): string {
  return variablePrefix + flag.slice(2).toUpperCase().replaceAll("-", "_");
}

export const keyEntries: readonly KeyEntry[] = groupNames.flatMap((group) =>
  Object.entries<Key>(keys[group]).map(([field, key]) => entryOf(group, field, key)),
);

export function entryAt<G extends GroupName>(group: G, field: keyof (typeof keys)[G] & string): KeyEntry {
  const found = keyEntries.find((entry) => entry.group === group && entry.field === field);
  assert(found !== undefined, `${group}.${field} is a key of the table`);
  return found;
}

/** Returns whether a command accepts a key. */
export function appliesTo({ group, key }: KeyEntry, command: Command): boolean {
  return (key.commands ?? groups[group].commands)?.includes(command) ?? true;
}
