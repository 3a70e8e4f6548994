// Byte-level BPE vocabulary ("gpt2"): tokens are spelled with one character for each byte. The rules that cut text into
// words are identified by their patterns.
import { type JsonField, quoted } from "../../../json-field.ts";
import { type TokenizerJson, typeOf, vocabularyOf } from "../source/tokenizer-json.ts";
import { keyPrefix, type Pairs, setText } from "../token-pairs.ts";
import { TokenTable, tokenTypes, type Warn, warnOfEnds, warnOfRules } from "../token-table.ts";
import { buildsAll, type Merge, readMerges } from "./merges.ts";
import { identifyPreTokenizer } from "./pre-tokenizers.ts";
import { sizeFor, type VocabularyPairs } from "./vocabulary.ts";

export function isByteLevel({ kind, preTokenizers }: TokenizerJson): boolean {
  return kind === "BPE" && preTokenizers.some((step) => typeOf(step) === "ByteLevel");
}

export function bytePairVocabulary(json: TokenizerJson, size: number | null, warn: Warn): VocabularyPairs {
  refuseOptions(json.model);
  checkNormalizers(json.normalizers, warn);
  for (const step of json.preTokenizers) {
    if (step.get("add_prefix_space").flag() ?? false) warn("no space is added before the first word of a text");
  }
  warnOfRules(json.added, warn);
  const ids = vocabularyOf(json);
  warnOfEnds(ids.keys(), json.added, warn);
  const merges = readMerges(json, ids);
  const added = new Map(json.added.map(({ text, id }) => [text, id]));
  const isBuilt = () =>
    buildsAll(
      merges,
      [...ids.keys()].filter((text) => !added.has(text)),
    );
  const known = identifyPreTokenizer(json, isBuilt, warn);

  const table = new TokenTable(json.root.file, sizeFor(size, [...ids.values(), ...added.values()]));
  for (const [text, id] of ids) table.set(id, text, tokenTypes.normal);
  for (const token of json.added) table.setAdded(token, warn);
  const pairs: Pairs = new Map();
  setText(pairs, "model", "gpt2");
  setText(pairs, "pre", known.name);
  table.write(pairs, false);
  writeMerges(pairs, merges);
  const unknown = json.model.get("unk_token").text();
  return { model: "gpt2", pairs, size: table.size, ids: new Map([...ids, ...added]), unknown };
}

/** Refuses options of a BPE model that GGUF has no key for. */
export function refuseOptions(model: JsonField): void {
  for (const key of ["continuing_subword_prefix", "end_of_word_suffix"]) {
    const affix = model.get(key).text() ?? "";
    if (affix !== "")
      throw model.get(key).invalid(`is ${quoted(affix)}, which llama.cpp has no rule for; use a GGUF file`);
  }
}

/** Refuses normalizers, except NFC: most text is in that form. */
function checkNormalizers(normalizers: readonly JsonField[], warn: Warn): void {
  for (const step of normalizers) {
    const type = typeOf(step);
    if (type === "NFC") warn("text is not converted to NFC before it is encoded, as llama.cpp does not");
    else
      throw step.invalid(`is ${quoted(type)}, which llama.cpp cannot do for this kind of vocabulary; use a GGUF file`);
  }
}

export function writeMerges(pairs: Pairs, merges: readonly Merge[]): void {
  // A merge is written "left right", so a space inside a symbol is written as U+0120, as in byte-level vocabularies.
  const value = merges.map((merge) => merge.map((symbol) => symbol.replaceAll(" ", "\u0120")).join(" "));
  pairs.set(`${keyPrefix}merges`, { type: "array", of: "string", value });
}
