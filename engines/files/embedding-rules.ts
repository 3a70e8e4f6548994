// Embedding rules: what an embedding model expects of its inputs. Prompts are texts put before an input, by input type. Multi-vector rules
// belong to models that return one vector per token (ColBERT). Converted GGUF files store the rules under troupe's own keys, because GGUF
// has no keys for them.
import { JsonField } from "./json-field.ts";

export const promptsKey = "troupe.embedding.prompts";
export const multiVectorKey = "troupe.embedding.multi_vector";

/** Prompts: texts that are put before an input. */
export interface EmbeddingPrompts {
  /** Text by name of the input type, such as `query`. */
  readonly texts: Readonly<Record<string, string>>;
  /** Name of the prompt for inputs without a type; null = no prompt. */
  readonly fallback: string | null;
}

/** How a ColBERT model reads queries and documents (arXiv 2004.12832). Tokens are given by their text. */
export interface MultiVectorRules {
  /** Token inserted after the first token of a query (or a document), which marks its kind; null = none. */
  readonly queryMarker: string | null;
  readonly documentMarker: string | null;
  /** Length in tokens to which a query is padded with mask tokens; 0 = no padding. */
  readonly queryTokens: number;
  /** Whether other tokens attend to the mask tokens with which a query is padded. */
  readonly attendsToMasks: boolean;
  /** Tokens of documents whose vectors are left out (punctuation). */
  readonly skipped: readonly string[];
}

const mostPrompts = 256;
const mostSkipped = 4096;
const mostQueryTokens = 8192;

/** Parses the JSON text of the GGUF key `promptsKey`. `path`: the model file, for errors. Throws `model_file_invalid`. */
export function parsePrompts(path: string, text: string): EmbeddingPrompts {
  const field = parsed(path, promptsKey, text);
  return promptsOf(field.get("texts"), field.get("fallback"));
}

/** Reads prompts by name, and the name of the default prompt, which must be among them. Throws `model_file_invalid`. */
export function promptsOf(prompts: JsonField, fallback: JsonField): EmbeddingPrompts {
  const names = Object.keys(prompts.record() ?? {});
  if (names.length > mostPrompts) throw prompts.invalid(`has ${names.length} prompts; at most ${mostPrompts} are read`);
  const texts = Object.fromEntries(
    names.map((name) => {
      const prompt = prompts.get(name);
      const suffix = prompt.get("suffix");
      if (!suffix.isAbsent) throw suffix.invalid("is not supported: a prompt is a text before an input");
      return [name, prompt.required(prompt.text())];
    }),
  );
  const name = fallback.text();
  if (name !== null && !Object.hasOwn(texts, name)) throw fallback.invalid("names no prompt of the model");
  return { texts, fallback: name };
}

/** Parses the JSON text of the GGUF key `multiVectorKey`. `path`: the model file, for errors. Throws `model_file_invalid`. */
export function parseMultiVector(path: string, text: string): MultiVectorRules {
  const field = parsed(path, multiVectorKey, text);
  const rule = (name: keyof MultiVectorRules) => field.get(name);
  return {
    queryMarker: rule("queryMarker").text(),
    documentMarker: rule("documentMarker").text(),
    queryTokens: queryTokensOf(rule("queryTokens")) ?? 0,
    attendsToMasks: rule("attendsToMasks").flag() ?? false,
    skipped: wordsOf(rule("skipped")),
  };
}

export function queryTokensOf(field: JsonField): number | null {
  return field.count(mostQueryTokens);
}

export function wordsOf(field: JsonField): string[] {
  return field.elements(mostSkipped).map((word) => word.required(word.text()));
}

function parsed(path: string, key: string, text: string): JsonField {
  try {
    return new JsonField(`${key} of ${path}`, "", JSON.parse(text));
  } catch {
    throw new JsonField(`${key} of ${path}`, "", text).invalid("is not JSON; convert the model again");
  }
}
