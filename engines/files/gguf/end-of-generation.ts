// End-of-generation tokens, for engines without a tokenizer. A model file names one or two of them. Further end tokens
// are found by their text, with the rules of llama.cpp, so that a model stops at the same token on all engines.
import type { TokenizerMetadata } from "./metadata.ts";

/** Names of tokens that end a generation even if no key of the file names them as end tokens. */
export const endNames: ReadonlySet<string> = new Set([
  ..."<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s>".split(
    " ",
  ),
  ..."<|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response>".split(" "),
  ..."<｜end▁of▁sentence｜> [e~[".split(" "),
]);

const infillPadNames = ["<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"];
const infillRepositoryNames = ["<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"];
const infillFileNames = ["<|file_sep|>"];
/**
 * Names of the infill tokens for padding, for the next repository and for the next file. These tokens also end a
 * generation.
 */
export const infillNames: ReadonlySet<string> = new Set([
  ...infillPadNames,
  ...infillRepositoryNames,
  ...infillFileNames,
]);

/** Default end token by tokenizer algorithm, used if the file names none. */
const defaultEnds: Readonly<Record<string, number>> = { llama: 2, gpt2: 11, whitespace: 11, t5: 1 };

/** Returns the ids of the tokens that end a generation, ascending. */
export function endOfGenerationTokens(tokenizer: TokenizerMetadata): number[] {
  const { tokens } = tokenizer;
  const ids = new Map<string, number>();
  tokens.forEach((text, token) => {
    if (infillNames.has(text)) ids.set(text, token);
  });
  const firstOf = (names: readonly string[]) => ids.get(names.find((name) => ids.has(name)) ?? "");
  const ends = new Set([
    tokenizer.eosId ?? defaultEnds[tokenizer.model],
    tokenizer.eotId,
    tokenizer.eomId,
    tokenizer.infillPadId ?? firstOf(infillPadNames),
    tokenizer.infillRepositoryId ?? firstOf(infillRepositoryNames),
    tokenizer.infillFileId ?? firstOf(infillFileNames),
  ]);
  tokens.forEach((text, token) => {
    if (endNames.has(text)) ends.add(token);
  });
  const found = [...ends].filter((token) => typeof token === "number" && token < tokens.length) as number[];
  const notEnds = shownNames(new Set(found.map((token) => tokens[token] as string)));
  return found.filter((token) => !notEnds.has(tokens[token] as string)).sort((a, b) => a - b);
}

/**
 * Returns the exceptions: names in `names` that do not end a generation, because `names` also has certain other end
 * tokens.
 */
function shownNames(names: ReadonlySet<string>): ReadonlySet<string> {
  const shown = new Set<string>();
  const hasCall = names.has("<|call|>") || names.has("<|calls|>");
  // If a model has these tokens, <|end|> ends only one message of a turn. The turn ends with <|return|>, <|flush|> or a
  // call.
  if (hasCall && (names.has("<|return|>") || names.has("<|flush|>"))) shown.add("<|end|>");
  if (names.has("<|tool_response>")) shown.add("</s>");
  return shown;
}
