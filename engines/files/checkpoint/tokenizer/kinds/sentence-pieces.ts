// SentencePiece BPE vocabulary ("llama"): tokens are texts with U+2581 for a space, and the pair whose token has the best
// score is joined first. Scores come from a tokenizer.model, or are made from the merges of a tokenizer.json.
import { type JsonField, quoted } from "../source/json-field.ts";
import type { SentencePieceFile } from "../source/sentence-piece-file.ts";
import { type AddedToken, type TokenizerJson, typeOf, vocabularyOf } from "../source/tokenizer-json.ts";
import {
  spaceSymbol,
  TokenTable,
  tokenTypes,
  type Warn,
  warnOfEnds,
  warnOfNormalized,
  warnOfRules,
} from "../token-table.ts";
import { type Pairs, setFlag, setText } from "../typed-value.ts";
import { refuseOptions, writeMerges } from "./byte-pairs.ts";
import { type Merge, mergeScores, readMerges } from "./merges.ts";
import { type Spacing, spacingOf } from "./spacing.ts";
import { sizeFor, type VocabularyPairs } from "./vocabulary.ts";

const byteName = /^<0x[0-9A-F]{2}>$/;
const withSpaces = (text: string) => text.replaceAll(spaceSymbol, " ");

/** Returns the vocabulary of a tokenizer.json. */
export function piecesOfJson(json: TokenizerJson, size: number | null, warn: Warn): VocabularyPairs {
  const { model, root } = json;
  refuseOptions(model);
  const spacing = spacingOf(json, warn);
  refuseOthers(spacing.others, warn);
  if (!spacing.writesSpaces) {
    throw root
      .get("pre_tokenizer")
      .invalid("has no ByteLevel step, and no step writes spaces as U+2581; use a GGUF file");
  }
  if (spacing.joinsSpaces || spacing.strips) warn("runs of spaces and spaces around a text are kept");
  warnOfRules(json.added, warn);
  warnOfEnds(vocabularyOf(json).keys(), json.added, warn);
  if (json.normalizers.length > 0) warnOfNormalized(json.added, warn);
  const ids = vocabularyOf(json);
  const added = new Map(json.added.map(({ text, id }) => [text, id]));
  const hasBytes = model.get("byte_fallback").flag() ?? false;
  const isByte = (text: string) => hasBytes && byteName.test(text);
  if (!hasBytes) warn("a character without a token becomes one unknown token for each of its bytes");
  const unknown = model.get("unk_token").text();

  const merges = readMerges(json, ids);
  const byId = [...ids].sort(([, one], [, other]) => one - other).map(([text]) => text);
  const texts = new Set(byId.filter((text) => !added.has(text) && !isByte(text) && text !== unknown));
  checkWords(spacing, texts, model);
  const scores = scoresOf(merges, texts, { spacing, model, warn });

  const table = new TokenTable(root.file, sizeFor(size, [...ids.values(), ...added.values()]));
  for (const [text, id] of ids) {
    const type = text === unknown ? tokenTypes.unknown : isByte(text) ? tokenTypes.byte : tokenTypes.normal;
    table.set(id, text, type, scores?.get(text) ?? 0);
  }
  for (const token of json.added) if (token.text !== unknown) table.setAdded(token, warn, withSpaces);
  const pairs: Pairs = new Map();
  setText(pairs, "model", scores === null ? "gpt2" : "llama");
  setText(pairs, "pre", scores === null ? scorelessPre : "default");
  table.write(pairs, scores !== null);
  if (scores === null) writeMerges(pairs, merges);
  else setFlag(pairs, "add_space_prefix", spacing.addsPrefix);
  const all = new Map([...ids, ...added]);
  return { model: scores === null ? "gpt2" : "llama", pairs, size: table.size, ids: all, unknown };
}

/** Returns the vocabulary of a tokenizer.model. `json`: the tokenizer.json beside it. */
export function piecesOfFile(
  file: SentencePieceFile,
  { added, json }: { readonly added: readonly AddedToken[]; readonly json: TokenizerJson | null },
  size: number | null,
  warn: Warn,
): VocabularyPairs {
  const spacing = json === null ? null : spacingOf(json, warn);
  if (file.charactersMap.length > 0) warn("characters are not replaced by the map of tokenizer.model, as in llama.cpp");
  if (spacing === null && file.removesExtraSpaces) warn("runs of spaces are kept, though tokenizer.model joins them");
  warnOfRules(added, warn);
  const ids = new Map<string, number>();
  const table = new TokenTable(file.file, sizeFor(size, [file.pieces.length - 1, ...added.map(({ id }) => id)]));
  for (const [id, { text, score, type }] of file.pieces.entries()) {
    table.set(id, type === tokenTypes.userDefined ? withSpaces(text) : text, type, score);
    ids.set(text, id);
  }
  for (const token of added) {
    if (file.pieces[token.id]?.type !== tokenTypes.unknown) table.setAdded(token, warn, withSpaces);
    ids.set(token.text, token.id);
  }
  const pairs: Pairs = new Map();
  setText(pairs, "model", "llama");
  setText(pairs, "pre", "default");
  table.write(pairs, true);
  setFlag(pairs, "add_space_prefix", spacing?.addsPrefix ?? file.addsSpacePrefix);
  const unknown = file.unknownId === null ? null : (file.pieces[file.unknownId]?.text ?? null);
  return { model: "llama", pairs, size: table.size, ids, unknown };
}

/** Name of the rules that join pairs in the order of merges, in texts with U+2581 for a space. */
const scorelessPre = "sarvam-moe";

/** Maximum fraction of pairs that scores may join differently. */
const maxDifferences = 0.01;

interface Surroundings {
  readonly spacing: Spacing;
  readonly model: JsonField;
  readonly warn: Warn;
}

/** Returns the scores of texts; null: the rules of `scorelessPre` express the merges better. Else refuses them. */
function scoresOf(
  merges: readonly Merge[],
  texts: ReadonlySet<string>,
  { spacing, model, warn }: Surroundings,
): ReadonlyMap<string, number> | null {
  const { scores, differences } = mergeScores(merges, texts);
  if (differences === 0) return scores;
  const crossing = merges.find(([left, right]) => /\n[^\n]|[^\n]\n/.test(left + right));
  if (!spacing.addsPrefix && crossing === undefined) return null;
  if (differences <= merges.length * maxDifferences) {
    warn(`${differences} pairs of symbols are not joined in the order of model.merges`);
    return scores;
  }
  const isCompared = differences !== Number.POSITIVE_INFINITY;
  const problem = isCompared
    ? `${differences} pairs of symbols cannot be joined in its order`
    : "its tokens are too long to compare";
  throw model
    .get("merges")
    .invalid(`is not that of a SentencePiece model: ${problem}; add tokenizer.model, or use a GGUF file`);
}

/** Refuses words that are encoded separately, if a token may span two of them. */
function checkWords({ splitsWords }: Spacing, texts: ReadonlySet<string>, model: JsonField): void {
  if (!splitsWords) return;
  for (const text of texts) {
    if (!text.slice(1).includes(spaceSymbol)) continue;
    throw model.get("vocab").invalid(`has ${quoted(text)}, but words are encoded separately; use a GGUF file`);
  }
}

function refuseOthers(others: readonly JsonField[], warn: Warn): void {
  for (const step of others) {
    if (typeOf(step) === "NFC") warn("text is not converted to NFC before it is encoded, as llama.cpp does not");
    else throw step.invalid(`is ${quoted(typeOf(step))}, which llama.cpp cannot do for this kind of vocabulary`);
  }
}
