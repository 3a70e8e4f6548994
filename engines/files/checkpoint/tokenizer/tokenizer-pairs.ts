// Tokenizer pairs: the key/value pairs of a GGUF file that describe the tokenizer of a Hugging Face folder. The result is
// what llama.cpp's converter writes; where it only approximates the folder's tokenizer, a warning says so.
import { setChatTemplates } from "./chat-templates.ts";
import { addExactRules } from "./exact-rules.ts";
import { bytePairVocabulary, isByteLevel } from "./kinds/byte-pairs.ts";
import { piecesOfFile } from "./kinds/file-pieces.ts";
import { piecesOfJson } from "./kinds/json-pieces.ts";
import { unigramOfFile, unigramOfJson } from "./kinds/unigram.ts";
import type { VocabularyPairs } from "./kinds/vocabulary.ts";
import { wordPieceVocabulary } from "./kinds/word-pieces.ts";
import { type FolderContent, readContent } from "./source/folder-content.ts";
import { TokenizerFolder } from "./source/tokenizer-folder.ts";
import { vocabularyOf } from "./source/tokenizer-json.ts";
import { setSpecialTokens } from "./special-tokens.ts";
import type { Pairs } from "./token-pairs.ts";
import type { Warn } from "./token-table.ts";

/**
 * Returns the pairs of the tokenizer in a folder, or in a file in the format of tokenizer.json. `vocabSize`: number of
 * tokens of the model; null = as many as the tokenizer has. `warn` is called with every difference between the tokenizer
 * of the folder and the result. Throws ServerError `model_file_invalid`, naming the file and the field.
 */
export async function tokenizerPairs(path: string, vocabSize: number | null, warn: Warn = () => {}): Promise<Pairs> {
  const folder = await TokenizerFolder.open(path);
  const content = await readContent(folder);
  const differences: string[] = [];
  const vocabulary = vocabularyIn(content, vocabSize, (difference, remains = false) => {
    if (remains) warn(difference);
    else differences.push(difference);
  });
  // With exact rules, the differences concern only llama.cpp's tokenizer, which troupe does not use.
  const isExact = content.json !== null && addExactRules(vocabulary, content.json);
  if (!isExact) for (const difference of differences) warn(difference);
  setSpecialTokens(vocabulary, content, path, warn);
  await setChatTemplates(vocabulary.pairs, folder, content.config);
  return vocabulary.pairs;
}

function vocabularyIn({ json, pieces, added }: FolderContent, size: number | null, warn: Warn): VocabularyPairs {
  if (pieces?.kind === "BPE" && (json === null || hasPieces({ json, pieces }, warn))) {
    return piecesOfFile(pieces, { added, json }, size, warn);
  }
  if (pieces !== null && json === null) return unigramOfFile(pieces, added, size, warn);
  if (json === null) throw new Error("a folder has a tokenizer.json or a tokenizer.model");
  if (isByteLevel(json)) return bytePairVocabulary(json, size, warn);
  if (json.kind === "BPE") return piecesOfJson(json, size, warn);
  if (json.kind === "Unigram") return unigramOfJson(json, size, warn);
  if (json.kind === "WordPiece") return wordPieceVocabulary(json, size, warn);
  throw json.model
    .get("type")
    .invalid(`is ${JSON.stringify(json.kind.slice(0, 64))}; expected BPE, Unigram or WordPiece`);
}

/** Whether the pieces of a tokenizer.model are the tokens of the tokenizer.json in the same folder. */
function hasPieces(
  {
    json,
    pieces,
  }: { readonly json: NonNullable<FolderContent["json"]>; readonly pieces: NonNullable<FolderContent["pieces"]> },
  warn: Warn,
): boolean {
  const ids = vocabularyOf(json);
  const isAdded = new Set(json.added.map(({ id }) => id));
  const other = pieces.pieces.findIndex(({ text }, id) => !isAdded.has(id) && ids.get(text) !== id);
  if (other >= 0) warn(`${pieces.file} is not used: its piece ${other} is not a token of tokenizer.json`, true);
  return other < 0;
}
