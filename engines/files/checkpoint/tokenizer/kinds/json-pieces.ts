// SentencePiece BPE vocabulary ("llama") of a tokenizer.json: tokens have U+2581 in place of a space, and the pair that joins to the token
// with the best score is merged first. The scores are computed from the merges.
import { type JsonField, quoted } from "../../../json-field.ts";
import { type TokenizerJson, typeOf, vocabularyOf } from "../source/tokenizer-json.ts";
import { type Pairs, setFlag, setText } from "../token-pairs.ts";
import {
  spaceSymbol,
  TokenTable,
  tokenTypes,
  type Warn,
  warnOfEnds,
  warnOfNormalized,
  warnOfRules,
  withSpaces,
} from "../token-table.ts";
import { refuseOptions, writeMerges } from "./byte-pairs.ts";
import { type Merge, mergeScores, readMerges } from "./merges.ts";
import { type Spacing, spacingOf } from "./spacing.ts";
import { sizeFor, type VocabularyPairs } from "./vocabulary.ts";

const byteName = /^<0x[0-9A-F]{2}>$/;

export function piecesOfJson(json: TokenizerJson, size: number | null, warn: Warn): VocabularyPairs {
  const { model, root } = json;
  const spacing = checkedSpacing(json, warn);
  const ids = vocabularyOf(json);
  const added = new Map(json.added.map(({ text, id }) => [text, id]));
  warnOfTokens(json, ids, warn);
  const hasBytes = model.get("byte_fallback").flag() ?? false;
  const unknown = model.get("unk_token").text();
  const typeOfText = (text: string) => {
    if (text === unknown) return tokenTypes.unknown;
    return hasBytes && byteName.test(text) ? tokenTypes.byte : tokenTypes.normal;
  };

  const merges = readMerges(json, ids);
  const byId = [...ids].sort(([, one], [, other]) => one - other).map(([text]) => text);
  const texts = new Set(byId.filter((text) => !added.has(text) && typeOfText(text) === tokenTypes.normal));
  checkWords(spacing, texts, model);
  const { scores, isExact } = scoresOf(merges, texts, { spacing, model, warn });
  if (!hasBytes) {
    const result = scores === null ? "is left out" : "becomes one unknown token for each of its bytes";
    warn(`a character without a token ${result}`);
  }

  const table = new TokenTable(root.file, sizeFor(size, [...ids.values(), ...added.values()]));
  for (const [text, id] of ids) table.set(id, text, typeOfText(text), scores?.get(text) ?? 0);
  for (const token of json.added) if (token.text !== unknown) table.setAdded(token, warn, withSpaces);
  const kind = scores === null ? "gpt2" : "llama";
  const pairs: Pairs = new Map();
  setText(pairs, "model", kind);
  setText(pairs, "pre", scores === null ? scorelessPre : "default");
  table.write(pairs, scores !== null);
  if (scores === null) writeMerges(pairs, merges);
  else setFlag(pairs, "add_space_prefix", spacing.addsPrefix);
  const all = new Map([...ids, ...added]);
  return { model: kind, pairs, size: table.size, ids: all, unknown, ...(!isExact && { merges }) };
}

/** Returns how the file's steps treat spaces. Refuses options and steps that GGUF has no key for. */
function checkedSpacing(json: TokenizerJson, warn: Warn): Spacing {
  refuseOptions(json.model);
  const spacing = spacingOf(json, warn);
  refuseOthers(spacing.others, warn);
  if (!spacing.writesSpaces) {
    throw json.root
      .get("pre_tokenizer")
      .invalid("has no ByteLevel step, and no step writes spaces as U+2581; use a GGUF file");
  }
  if (spacing.joinsSpaces || spacing.strips) warn("runs of spaces and spaces around a text are kept");
  return spacing;
}

function warnOfTokens({ added, normalizers }: TokenizerJson, ids: ReadonlyMap<string, number>, warn: Warn): void {
  warnOfRules(added, warn);
  warnOfEnds(ids.keys(), added, warn);
  if (normalizers.length > 0) warnOfNormalized(added, warn);
}

/** Name of the llama.cpp rules that join pairs in the order of the merges, in text with U+2581 in place of a space. */
const scorelessPre = "sarvam-moe";

/** Maximum number of pairs that are joined differently with scores than with merges, as a fraction of the number of merges. */
const maxDifferences = 0.01;

interface Surroundings {
  readonly spacing: Spacing;
  readonly model: JsonField;
  readonly warn: Warn;
}

/** Returns scores by token; null if the rules `scorelessPre` express the merges exactly. Throws if neither expresses them. */
function scoresOf(
  merges: readonly Merge[],
  texts: ReadonlySet<string>,
  { spacing, model, warn }: Surroundings,
): { readonly scores: ReadonlyMap<string, number> | null; readonly isExact: boolean } {
  const most = spacing.addsPrefix ? merges.length * maxDifferences : 0;
  const { scores, differences } = mergeScores(merges, texts, most);
  if (differences === 0) return { scores, isExact: true };
  const crossing = merges.find(([left, right]) => /\n[^\n]|[^\n]\n/.test(left + right));
  if (!spacing.addsPrefix && crossing === undefined) return { scores: null, isExact: true };
  if (differences <= merges.length * maxDifferences) {
    warn(`${differences} pairs of symbols are not joined in the order of model.merges`);
    return { scores, isExact: false };
  }
  const isCompared = differences !== Number.POSITIVE_INFINITY;
  const problem = isCompared
    ? `${differences} pairs of symbols cannot be joined in its order`
    : "its tokens are too long to compare";
  throw model
    .get("merges")
    .invalid(`is not that of a SentencePiece model: ${problem}; add tokenizer.model, or use a GGUF file`);
}

/** Refuses a tokenizer that encodes words separately although a token spans two words. */
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
