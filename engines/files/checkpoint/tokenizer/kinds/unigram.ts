// Unigram vocabulary ("t5"): pieces with scores, and the map of characters that are replaced before encoding.
import { type JsonField, quoted } from "../../../json-field.ts";
import type { SentencePieceFile } from "../source/sentence-piece-file.ts";
import { type AddedToken, maxTokens, type TokenizerJson, typeOf } from "../source/tokenizer-json.ts";
import { keyPrefix, type Pairs, setFlag, setText } from "../token-pairs.ts";
import { TokenTable, tokenTypes, type Warn, warnOfRules } from "../token-table.ts";
import { spacingOf } from "./spacing.ts";
import { sizeFor, type VocabularyPairs } from "./vocabulary.ts";

export function unigramOfJson(json: TokenizerJson, size: number | null, warn: Warn): VocabularyPairs {
  const { model, root, added } = json;
  const spacing = spacingOf(json, warn);
  if (!spacing.writesSpaces) throw root.get("pre_tokenizer").invalid("has no Metaspace step; use a GGUF file");
  if (spacing.strips && !spacing.joinsSpaces) warn("spaces around a text are kept");
  const map = charactersMap(spacing.others);
  if (map.length > 0) warn("characters are replaced by the longest match, as in SentencePiece, also across graphemes");
  if (model.get("byte_fallback").flag() ?? false)
    warn("a character without a piece becomes the unknown token, not bytes");
  warnOfRules(added, warn);
  const unknownId = model.get("unk_id").count(maxTokens);
  const pieces = piecesOf(model.get("vocab"));
  const addedIds = new Map(added.map(({ text, id }) => [text, id]));

  const table = new TokenTable(root.file, sizeFor(size, [pieces.length - 1, ...addedIds.values()]));
  for (const [id, [text, score]] of pieces.entries()) {
    table.set(id, text, id === unknownId ? tokenTypes.unknown : tokenTypes.normal, score);
  }
  for (const token of added) if (token.id !== unknownId) table.setAdded(token, warn);
  return {
    model: "t5",
    pairs: pairsOf(table, { addsPrefix: spacing.addsPrefix, joinsSpaces: spacing.joinsSpaces, map }),
    size: table.size,
    ids: new Map([...pieces.map(([text], id) => [text, id] as const), ...addedIds]),
    unknown: unknownId === null ? null : (pieces[unknownId]?.[0] ?? null),
  };
}

export function unigramOfFile(
  file: SentencePieceFile,
  added: readonly AddedToken[],
  size: number | null,
  warn: Warn,
): VocabularyPairs {
  warnOfRules(added, warn);
  const table = new TokenTable(file.file, sizeFor(size, [file.pieces.length - 1, ...added.map(({ id }) => id)]));
  const ids = new Map<string, number>();
  for (const [id, { text, score, type }] of file.pieces.entries()) {
    table.set(id, text, type, score);
    ids.set(text, id);
  }
  for (const token of added) {
    if (token.id !== file.unknownId) table.setAdded(token, warn);
    ids.set(token.text, token.id);
  }
  const { addsSpacePrefix: addsPrefix, removesExtraSpaces: joinsSpaces, charactersMap: map } = file;
  const unknown = file.unknownId === null ? null : (file.pieces[file.unknownId]?.text ?? null);
  return { model: "t5", pairs: pairsOf(table, { addsPrefix, joinsSpaces, map }), size: table.size, ids, unknown };
}

interface TextRules {
  readonly addsPrefix: boolean;
  readonly joinsSpaces: boolean;
  readonly map: Uint8Array;
}

function pairsOf(table: TokenTable, { addsPrefix, joinsSpaces, map }: TextRules): Pairs {
  const pairs: Pairs = new Map();
  setText(pairs, "model", "t5");
  setText(pairs, "pre", "default");
  table.write(pairs, true);
  setFlag(pairs, "add_space_prefix", addsPrefix);
  setFlag(pairs, "remove_extra_whitespaces", joinsSpaces);
  if (map.length > 0) pairs.set(`${keyPrefix}precompiled_charsmap`, { type: "array", of: "u8", value: [...map] });
  return pairs;
}

function piecesOf(field: JsonField): readonly [text: string, score: number][] {
  const list = field.required(field.list());
  if (list.length > maxTokens) throw field.invalid(`has ${list.length} pieces; at most ${maxTokens} are read`);
  return list.map((value, index) => {
    if (isPiece(value)) return value;
    throw field.get(String(index)).invalid("is not a piece; expected a text and a score");
  });
}

function isPiece(value: unknown): value is [string, number] {
  return Array.isArray(value) && value.length === 2 && typeof value[0] === "string" && Number.isFinite(value[1]);
}

/** Returns the compiled character map of the normalizer's steps. Refuses steps that GGUF has no key for. */
function charactersMap(steps: readonly JsonField[]): Uint8Array {
  let map = new Uint8Array(0);
  for (const step of steps) {
    const field = step.get("precompiled_charsmap");
    if (typeOf(step) !== "Precompiled" || map.length > 0) {
      throw step.invalid(`is ${quoted(typeOf(step))}, which llama.cpp cannot do; use a GGUF file`);
    }
    const text = field.text() ?? "";
    if (!/^[A-Za-z0-9+/]*={0,2}$/.test(text)) throw field.invalid("is not base64");
    map = Uint8Array.from(Buffer.from(text, "base64"));
  }
  return map;
}
