// WordPiece vocabulary ("bert"). The files mark the pieces inside a word ("##ing"); llama.cpp marks the beginnings of words
// with U+2581 instead.
import { type JsonField, quoted } from "../../../json-field.ts";
import { type TokenizerJson, typeOf, vocabularyOf } from "../source/tokenizer-json.ts";
import { type Pairs, setFlag, setText } from "../token-pairs.ts";
import { spaceSymbol, TokenTable, tokenTypes, type Warn, warnOfRules } from "../token-table.ts";
import { sizeFor, type VocabularyPairs } from "./vocabulary.ts";

export function wordPieceVocabulary(json: TokenizerJson, size: number | null, warn: Warn): VocabularyPairs {
  const { root, model, added, preTokenizers } = json;
  const other = preTokenizers.find((step) => typeOf(step) !== "BertPreTokenizer");
  if (other !== undefined || preTokenizers.length === 0) {
    throw root.get("pre_tokenizer").invalid(`is ${quoted(other ? typeOf(other) : "none")}; expected BertPreTokenizer`);
  }
  warnOfRules(added, warn);
  warn(
    "long words are cut into pieces, accents are removed by llama.cpp's tables, and \\v, \\f, U+0085 separate words",
  );
  const ids = vocabularyOf(json);
  const addedIds = new Map(added.map(({ text, id }) => [text, id]));
  const inside = model.get("continuing_subword_prefix").text() ?? "##";

  const table = new TokenTable(root.file, sizeFor(size, [...ids.values(), ...addedIds.values()]));
  for (const [text, id] of ids) table.set(id, text, tokenTypes.normal);
  for (const token of added) table.setAdded(token, warn);
  table.respell([tokenTypes.normal], (text) => {
    return inside !== "" && text.startsWith(inside) ? text.slice(inside.length) : spaceSymbol + text;
  });

  const pairs: Pairs = new Map();
  setText(pairs, "model", "bert");
  setText(pairs, "pre", "default");
  table.write(pairs, false);
  writeNormalizer(pairs, json, warn);
  const unknown = model.get("unk_token").text() ?? "[UNK]";
  return { model: "bert", pairs, size: table.size, ids: new Map([...ids, ...addedIds]), unknown };
}

function writeNormalizer(pairs: Pairs, { root, normalizers }: TokenizerJson, warn: Warn): void {
  const [step, another] = normalizers;
  if (step === undefined || another !== undefined || typeOf(step) !== "BertNormalizer") {
    const types = normalizers.map(typeOf).join(", ") || "none";
    throw root.get("normalizer").invalid(`is ${quoted(types)}; expected one BertNormalizer, use a GGUF file`);
  }
  setFlag(pairs, "normalizer.lowercase", isOn(step, "lowercase"));
  const strips = step.get("strip_accents").flag();
  if (strips !== null) setFlag(pairs, "normalizer.strip_accents", strips);
  for (const key of ["clean_text", "handle_chinese_chars"]) {
    if (!isOn(step, key)) warn(`${key} is off, but text is encoded as if it were on`);
  }
}

function isOn(step: JsonField, key: string): boolean {
  return step.get(key).flag() ?? true;
}
