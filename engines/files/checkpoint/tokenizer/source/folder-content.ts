// Content of a tokenizer folder: all files that describe the tokenizer, read and parsed. Older folders have no tokenizer.json; their files
// are converted to its form.
import { join } from "node:path";
import { ServerError } from "../../../../../runtime/errors.ts";
import type { JsonField } from "../../../json-field.ts";
import { olderTokenizer } from "./older-files.ts";
import { roleNames } from "./roles.ts";
import { parseSentencePiece, type SentencePieceFile } from "./sentence-piece-file.ts";
import type { TokenizerFolder } from "./tokenizer-folder.ts";
import { type AddedToken, addedToken, maxTokens, parseTokenizerJson, type TokenizerJson } from "./tokenizer-json.ts";

export interface FolderContent {
  /** Content of tokenizer.json, or of the older files, converted to its form. null if there is only a tokenizer.model. */
  readonly json: TokenizerJson | null;
  /** The tokenizer.model; null if there is none or the tokenizer.json makes it superfluous. */
  readonly pieces: SentencePieceFile | null;
  /** Added tokens of the folder. */
  readonly added: readonly AddedToken[];
  readonly config: JsonField | null;
  /** Texts of the special tokens, by role. */
  readonly names: ReadonlyMap<string, string>;
  /** The files config.json and generation_config.json. */
  readonly modelConfig: JsonField | null;
  readonly generationConfig: JsonField | null;
}

/** SentencePiece files have one of these names. */
const pieceFiles = ["tokenizer.model", "spiece.model"];

export async function readContent(folder: TokenizerFolder): Promise<FolderContent> {
  const [root, config, tokenMap, modelConfig, generationConfig] = await Promise.all([
    folder.tokenizerJson(),
    folder.json("tokenizer_config.json"),
    folder.json("special_tokens_map.json"),
    folder.json("config.json"),
    folder.json("generation_config.json"),
  ]);
  const names = roleNames(config, tokenMap);
  const older = root === null ? await olderTokenizer(folder, { config, modelConfig, names }) : null;
  const json = root === null ? older : parseTokenizerJson(root);
  const pieces = json === null || isPieceBased(json) ? await readPieces(folder) : null;
  if (json === null && pieces === null) {
    const expected = "a tokenizer.json, tokenizer.model, vocab.json with merges.txt, or vocab.txt";
    throw new ServerError("model_file_invalid", `${folder.path} has no tokenizer; expected ${expected}`);
  }
  const added = root === null ? await olderAddedTokens(folder, config, { names, json, pieces }) : (json?.added ?? []);
  return {
    json: json === null ? null : { ...json, added },
    pieces,
    added,
    config,
    names,
    modelConfig,
    generationConfig,
  };
}

/**
 * Whether a tokenizer.json has a BPE vocabulary that is not byte-level. A tokenizer.model can then have better scores than those computed
 * from the merges.
 */
function isPieceBased({ kind, preTokenizers }: TokenizerJson): boolean {
  return kind === "BPE" && !preTokenizers.some((step) => step.get("type").value === "ByteLevel");
}

async function readPieces(folder: TokenizerFolder): Promise<SentencePieceFile | null> {
  for (const name of pieceFiles) {
    const bytes = await folder.bytes(name);
    if (bytes !== null) return parseSentencePiece(join(folder.path, name), bytes);
  }
  return null;
}

interface Vocabularies {
  readonly names: ReadonlyMap<string, string>;
  readonly json: TokenizerJson | null;
  readonly pieces: SentencePieceFile | null;
}

/** Returns the added tokens that older folders list in several files, by id. Special tokens of the vocabulary count too. */
async function olderAddedTokens(
  folder: TokenizerFolder,
  config: JsonField | null,
  { names, json, pieces }: Vocabularies,
): Promise<AddedToken[]> {
  const special = new Set(names.values());
  const tokens = new Map<number, AddedToken>();
  const add = (text: string, id: number) =>
    tokens.set(id, { id, text, isSpecial: special.has(text), isNormalized: false, rules: [] });

  pieces?.pieces.forEach(({ text }, id) => {
    if (special.has(text)) add(text, id);
  });
  const vocabulary = json?.model.get("vocab").record() ?? {};
  for (const text of special) if (Object.hasOwn(vocabulary, text)) add(text, vocabulary[text] as number);
  const listed = await folder.json("added_tokens.json");
  for (const text of Object.keys(listed?.record() ?? {})) {
    const id = listed?.get(text);
    add(text, id?.required(id.count(maxTokens - 1)) as number);
  }
  const decoder = config?.get("added_tokens_decoder");
  for (const key of Object.keys(decoder?.record() ?? {})) {
    const field = decoder?.get(key) as JsonField;
    if (!/^\d{1,7}$/.test(key)) throw field.invalid("is not a token id");
    const token = addedToken(field, field.with(Number(key)));
    tokens.set(token.id, token);
  }
  return [...tokens.values()];
}
