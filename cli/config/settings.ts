// Settings given by a program that embeds troupe: the keys of a settings file and those of variables, named as in
// Config. config.ts checks the values.
import type { z } from "zod";
import { ServerError } from "../../runtime/errors.ts";
import { suggestion } from "../../runtime/nearest.ts";
import type { FileValues, Given } from "./given.ts";
import type { ValuesOf } from "./key.ts";
import { appliesTo, type GroupName, groups, type KeyEntry, keyEntries, type keys } from "./keys.ts";

type Keys = typeof keys;

/** Values that a program may give a key: those in a settings file. A schema of `unknown` input accepts at least its own output. */
type Accepted<K> = K extends { readonly type: infer T extends z.ZodType; readonly default: infer Default }
  ? (unknown extends z.input<T> ? z.output<T> : z.input<T>) | Default
  : never;

type Some<G extends GroupName> = {
  readonly [N in keyof ValuesOf<Keys[G]> & keyof Keys[G]]?: Accepted<Keys[G][N]>;
};

/** Settings about ports. An embedded troupe rejects them, because the embedding program listens on the port. */
const portless = {
  server: ["host", "port", "mcpPort"],
  troupe: ["edge", "maxWebsockets", "websocketIdleSecs", "websocketLifetimeSecs"],
} as const;

type Portless = { readonly [G in keyof typeof portless]: (typeof portless)[G][number] };

/** Settings of a model; `modelId` is a path, or a name on the hub. */
export interface ModelSettings extends Omit<Some<"models">, "modelId"> {
  readonly modelId: string;
  readonly sampling?: Some<"sampling">;
  readonly format?: Some<"format">;
  readonly embedding?: Some<"embedding">;
  readonly adapter?: Some<"adapter">;
  readonly quantization?: Some<"quantization">;
  readonly device?: Some<"device">;
  readonly multimodal?: Some<"multimodal">;
  readonly remote?: Some<"remote">;
}

/** Settings as in docs/configuration.md, in camelCase: `max_seqs` is `maxSeqs`, `[troupe] log_level` is `troupe.logLevel`. */
export interface TroupeSettings extends Some<"general">, Some<"agentic"> {
  /** Models to load; default: one that suits the memory of this machine. */
  readonly models?: readonly ModelSettings[];
  readonly server?: Omit<Some<"server">, Portless["server"]>;
  readonly pagedAttn?: Some<"pagedAttn">;
  readonly sandbox?: Some<"sandbox">;
  readonly search?: Some<"search">;
  readonly speech?: Some<"speech">;
  readonly diffusion?: Some<"diffusion">;
  readonly troupe?: Omit<Some<"troupe">, Portless["troupe"]>;
}

export function givenBySettings(settings: TroupeSettings): FileValues {
  const { models = [], ...shared } = settings;
  if (!Array.isArray(models)) throw invalid(`models expects an array; got ${JSON.stringify(models)}`);
  const values = new Map<KeyEntry, Given>();
  read("", shared, "", values);
  const ofModels = models.map((model, index) => {
    const place = `models[${index}]`;
    const own = new Map<KeyEntry, Given>();
    read("models", model, `${place}.`, own);
    return { values: own, place };
  });
  return { values, models: ofModels };
}

/** Reads the keys of a section, and its subsections. `prefix`: name of the section in messages. */
function read(section: string, given: object, prefix: string, into: Map<KeyEntry, Given>): void {
  for (const [field, value] of Object.entries(given)) {
    const name = `${prefix}${field}`;
    // null means that the key is not set, as in Config.
    if (value === undefined || value === null) continue;
    const inner = sectionOf(section, field);
    if (inner !== null) {
      if (typeof value !== "object") throw invalid(`${name} expects an object; got ${JSON.stringify(value)}`);
      read(inner, value, `${name}.`, into);
      continue;
    }
    into.set(entryOf(section, field, name), { value, source: "program", name, place: null });
  }
}

/** Returns the section of a settings file that corresponds to a field, such as `models.device`; null if the field is a key. */
function sectionOf(section: string, field: string): string | null {
  const own = field.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
  const name = section === "" ? own : `${section}.${own}`;
  return Object.values(groups).some((group) => group.section === name) ? name : null;
}

function entryOf(section: string, field: string, name: string): KeyEntry {
  // Keys that have no name in a file, such as secrets, are included: a program reads no settings from the environment.
  const known = keyEntries.filter((entry) => groups[entry.group].section === section && appliesTo(entry, "serve"));
  const entry = known.find((one) => one.field === field);
  if (entry === undefined) {
    throw invalid(
      `unknown setting "${name}"${suggestion(
        field,
        known.map((one) => one.field),
      )}`,
    );
  }
  const excluded: readonly string[] = section === "server" || section === "troupe" ? portless[section] : [];
  if (excluded.includes(field))
    throw invalid(`"${name}" is not for an embedded troupe: the program listens; remove it`);
  return entry;
}

function invalid(message: string): ServerError {
  return new ServerError("config_invalid", message);
}
