// SentencePiece BPE vocabulary ("llama") of a tokenizer.model: pieces with scores and types, and the added tokens of other files in the
// folder.
import type { SentencePieceFile } from "../source/sentence-piece-file.ts";
import type { AddedToken, TokenizerJson } from "../source/tokenizer-json.ts";
import { type Pairs, setFlag, setText } from "../token-pairs.ts";
import { TokenTable, tokenTypes, type Warn, warnOfRules, withSpaces } from "../token-table.ts";
import { spacingOf } from "./spacing.ts";
import { sizeFor, type VocabularyPairs } from "./vocabulary.ts";

/** Returns the vocabulary of a tokenizer.model. `json`: the tokenizer.json in the same folder. */
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
