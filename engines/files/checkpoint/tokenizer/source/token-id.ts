// Token id: the id of one token of a tokenizer by its text.
import { ServerError } from "../../../../../runtime/errors.ts";
import { readContent } from "./folder-content.ts";
import { TokenizerFolder } from "./tokenizer-folder.ts";
import { vocabularyOf } from "./tokenizer-json.ts";

/** Returns the id of a token. `path`: a tokenizer, as for tokenizerPairs(). Throws `model_file_invalid` if it has no such token. */
export async function tokenId(path: string, text: string): Promise<number> {
  const { added, json } = await readContent(await TokenizerFolder.open(path));
  const id = added.find((token) => token.text === text)?.id ?? vocabularyId(json, text);
  if (id !== undefined) return id;
  const message = `the tokenizer at ${path} has no token "${text}", which ends the rows of an image; name the model's own tokenizer`;
  throw new ServerError("model_file_invalid", message);
}

/** Returns the id of a token of the vocabulary; undefined for a Unigram vocabulary, whose special tokens are all added tokens. */
function vocabularyId(json: Awaited<ReturnType<typeof readContent>>["json"], text: string): number | undefined {
  return json === null || json.kind === "Unigram" ? undefined : vocabularyOf(json).get(text);
}
