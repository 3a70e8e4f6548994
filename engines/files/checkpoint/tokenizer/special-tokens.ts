// Special tokens: sets the keys of their ids, and whether they are added to a text. The rules follow llama.cpp's converter. In contrast to
// it, a tokenizer.json without other files is sufficient.

import { ServerError } from "../../../../runtime/errors.ts";
import { endNames } from "../../gguf/end-of-generation.ts";
import type { JsonField } from "../../json-field.ts";
import { setInfillTokens } from "./infill-tokens.ts";
import type { VocabularyPairs } from "./kinds/vocabulary.ts";
import { type Wrapping, wrappingOf } from "./post-processor.ts";
import type { FolderContent } from "./source/folder-content.ts";
import { type Role, roles } from "./source/roles.ts";
import { keyPrefix, setFlag, setToken } from "./token-pairs.ts";
import { tokenTypes, type Warn } from "./token-table.ts";

/** Names of the roles in GGUF keys. The format misspells "separator", and has no key for "cls". */
const keys: Readonly<Record<Role, string | null>> = {
  bos: "bos",
  eos: "eos",
  unk: "unknown",
  sep: "seperator",
  pad: "padding",
  cls: null,
  mask: "mask",
};

/** Id of the end token by vocabulary type, used if no file names the end token. */
const defaultEnds: Readonly<Record<string, number>> = { gpt2: 11, llama: 2, t5: 1 };

/** Adds the keys of special tokens to those of the vocabulary. `path`: the folder, for errors. */
export function setSpecialTokens(vocabulary: VocabularyPairs, content: FolderContent, path: string, warn: Warn): void {
  const wrapping = content.json === null ? null : wrappingOf(content.json, warn);
  const names = namesOf(content.names, wrapping);
  const ids = idsOf(names, vocabulary, content);
  if (!ids.has("eos")) ids.set("eos", endOf(vocabulary, path));
  setFurtherEnds(ids, names, vocabulary, content, warn);

  for (const [role, id] of ids) {
    const key = role === "eot" || role === "eom" ? role : keys[role as Role];
    if (key !== null) setToken(vocabulary.pairs, `${key}_token_id`, id);
  }
  setAdditions(vocabulary, content, { wrapping, ids }, warn);
  const separates = addsSeparator(wrapping, names);
  if (separates !== null && vocabulary.model !== "bert") {
    setFlag(vocabulary.pairs, "add_sep_token", separates && ids.has("sep"));
  }
  setInfillTokens(vocabulary);
}

/** Returns the special tokens' texts by role, completed by the tokens that the post-processor adds. */
function namesOf(given: ReadonlyMap<string, string>, wrapping: Wrapping | null): Map<string, string> {
  const names = new Map(given);
  const fill = (role: string, name: string | null | undefined) => {
    if (name !== null && name !== undefined && !names.has(role)) names.set(role, name);
  };
  fill("bos", names.get("cls"));
  fill("eos", names.get("sep"));
  fill("bos", wrapping?.first);
  fill("cls", wrapping?.first);
  const last = wrapping?.last ?? null;
  if (last !== null && names.get("eos") !== last) {
    // The token that the post-processor adds after every text becomes `eos`. The former `eos` becomes `eot` (if there is none),
    // so that it still ends a generation.
    fill("eot", names.get("eos"));
    names.set("eos", last);
  }
  if (addsSeparator(wrapping, names)) fill("sep", names.get("eos"));
  return names;
}

/**
 * Returns whether a separator follows the end token between two texts; null = unknown. If an end token is added after every text, a single
 * token between two texts is that end token, not a separator.
 */
function addsSeparator(wrapping: Wrapping | null, names: ReadonlyMap<string, string>): boolean | null {
  if (wrapping === null || wrapping.between === null) return null;
  const separators = wrapping.between.filter((token) => token === names.get("sep") || token === names.get("eos"));
  return separators.length > (wrapping.last === null ? 0 : 1);
}

function idsOf(
  names: ReadonlyMap<string, string>,
  { ids, size, unknown }: VocabularyPairs,
  { pieces, modelConfig, generationConfig }: FolderContent,
): Map<string, number> {
  const found = new Map<string, number>();
  const set = (role: string, id: number | null | undefined) => {
    if (id !== null && id !== undefined && id < size && !found.has(role)) found.set(role, id);
  };
  for (const [role, name] of names) set(role, ids.get(name));
  for (const role of roles) {
    for (const id of listedIds(modelConfig, role)) set(role, id);
    for (const id of listedIds(generationConfig, role)) set(role, id);
  }
  if (unknown !== null) set("unk", ids.get(unknown));
  if (pieces !== null) {
    set("bos", pieces.bosId);
    set("eos", pieces.eosId);
    set("unk", pieces.unknownId);
    set("pad", pieces.padId);
  }
  return found;
}

/** Returns the ids that a model's config lists for a role: one id, a list, or none. */
function listedIds(config: JsonField | null, role: string): number[] {
  if (config === null) return [];
  const field = config.get(`${role}_token_id`);
  const own = field.isAbsent ? config.get("text_config").get(`${role}_token_id`) : field;
  const values: readonly unknown[] = Array.isArray(own.value) ? own.value : [own.value];
  return values.filter((id) => Number.isInteger(id) && (id as number) >= 0) as number[];
}

/** Returns the end token if no file names it: a token with a usual name, or the default of the vocabulary. */
function endOf({ ids, pairs, model, size }: VocabularyPairs, path: string): number {
  const types = pairs.get(`${keyPrefix}token_type`)?.value as readonly number[];
  const isControl = (id: number) => id < size && types[id] === tokenTypes.control;
  const named = [...endNames].map((name) => ids.get(name)).find((id) => id !== undefined && isControl(id));
  const end = named ?? defaultEnds[model] ?? ids.get("[SEP]");
  if (end !== undefined && isControl(end)) return end;
  throw new ServerError(
    "model_file_invalid",
    `${path}: no file names the token that ends a text; set eos_token in tokenizer_config.json or eos_token_id in config.json`,
  );
}

/** Adds end tokens that are listed only in the configs of the model. End tokens with a usual name need no key. */
function setFurtherEnds(
  found: Map<string, number>,
  names: ReadonlyMap<string, string>,
  { ids, size }: VocabularyPairs,
  { modelConfig, generationConfig }: FolderContent,
  warn: Warn,
): void {
  const usual = new Set([...endNames].map((name) => ids.get(name)));
  const listed = [...listedIds(modelConfig, "eos"), ...listedIds(generationConfig, "eos")];
  const further = new Set(listed.filter((id) => id < size && id !== found.get("eos") && !usual.has(id)));
  for (const role of ["eot", "eom"]) {
    const [id] = further;
    if (id === undefined) return;
    if (found.has(role) || names.has(role)) continue;
    found.set(role, id);
    further.delete(id);
  }
  if (further.size > 0) warn(`these tokens do not end a generation: ${[...further].join(", ")}`);
}

interface Additions {
  readonly wrapping: Wrapping | null;
  readonly ids: Map<string, number>;
}

/** Sets which special tokens are added to a text. */
function setAdditions(
  { model, pairs }: VocabularyPairs,
  { config }: FolderContent,
  { wrapping, ids }: Additions,
  warn: Warn,
): void {
  const configured = (key: string) => (model === "bert" ? null : (config?.get(key).flag() ?? null));
  // Without a tokenizer.json, Llama's tokenizer class adds a begin token, and T5's class adds an end token.
  let addsBos = configured("add_bos_token") ?? (wrapping === null ? model === "llama" : wrapping.first !== null);
  const addsEos = configured("add_eos_token") ?? (wrapping === null ? model === "t5" : wrapping.last !== null);
  if (addsBos && !ids.has("bos")) {
    warn("no begin token is added to a text, though the tokenizer asks for one: no file names it");
    addsBos = false;
  }
  setFlag(pairs, "add_bos_token", addsBos);
  setFlag(pairs, "add_eos_token", addsEos);
}
