// Embedding config: the prompts of an embedding model and the rules of a ColBERT model, from files next to a checkpoint's config.json:
// config_sentence_transformers.json (sentence-transformers and PyLate), and artifact.metadata (ColBERT).
import { join } from "node:path";
import { ServerError } from "../../../../runtime/errors.ts";
import {
  type EmbeddingPrompts,
  type MultiVectorRules,
  promptsOf,
  queryTokensOf,
  wordsOf,
} from "../../embedding-rules.ts";
import { JsonField } from "../../json-field.ts";
import { readJsonObject } from "../json-file.ts";

/** Query length in tokens of ColBERT models whose files name none. */
const defaultQueryTokens = 32;
/** ASCII punctuation, whose vectors ColBERT leaves out. */
const punctuation = [..."!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"];

/** Reads the prompts; null if the model has none. Throws `model_file_invalid`. */
export async function readPrompts(folder: string): Promise<EmbeddingPrompts | null> {
  const field = await readField(join(folder, "config_sentence_transformers.json"));
  if (field === null) return null;
  const prompts = promptsOf(field.get("prompts"), field.get("default_prompt_name"));
  return Object.keys(prompts.texts).length === 0 ? null : prompts;
}

/**
 * Reads the rules of a ColBERT model. Rules that its files leave out get defaults. But the files of a model of ColBERT's own class
 * (`isStanford`) must name the marker tokens of queries and documents. Throws `model_file_invalid`.
 */
export async function readMultiVector(folder: string, isStanford: boolean): Promise<MultiVectorRules> {
  const metadata = await readField(join(folder, "artifact.metadata"));
  if (metadata !== null) return stanfordRules(metadata);
  const path = join(folder, "config_sentence_transformers.json");
  const field = (await readField(path)) ?? new JsonField(path, "", {});
  if (isStanford && field.get("query_prefix").isAbsent) {
    const message = `${join(folder, "artifact.metadata")} is missing, which names the markers of queries and documents of the class HF_ColBERT; fetch the model again`;
    throw new ServerError("model_file_invalid", message);
  }
  const expands = field.get("do_query_expansion").flag() ?? true;
  return {
    queryMarker: field.get("query_prefix").text() || null,
    documentMarker: field.get("document_prefix").text() || null,
    queryTokens: expands ? (queryTokensOf(field.get("query_length")) ?? defaultQueryTokens) : 0,
    attendsToMasks: field.get("attend_to_expansion_tokens").flag() ?? false,
    skipped: field.get("skiplist_words").isAbsent ? punctuation : wordsOf(field.get("skiplist_words")),
  };
}

function stanfordRules(field: JsonField): MultiVectorRules {
  return {
    queryMarker: field.get("query_token_id").text() ?? "[unused0]",
    documentMarker: field.get("doc_token_id").text() ?? "[unused1]",
    queryTokens: queryTokensOf(field.get("query_maxlen")) ?? defaultQueryTokens,
    attendsToMasks: field.get("attend_to_mask_tokens").flag() ?? false,
    skipped: (field.get("mask_punctuation").flag() ?? true) ? punctuation : [],
  };
}

async function readField(path: string): Promise<JsonField | null> {
  const value = await readJsonObject(path);
  return value === null ? null : new JsonField(path, "", value);
}
