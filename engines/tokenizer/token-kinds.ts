// Owns what each token is for: text, a control token of the model, a byte, or nothing. Files often call a control token
// "normal"; the names that llama.cpp treats as control whatever the file says are treated so here too.
import { ServerError } from "../../runtime/errors.ts";
import type { TokenizerMetadata } from "../gguf/metadata.ts";

export type TokenKind =
  /** Text, reached by encoding. */
  | "normal"
  /** Structure: reached only by its name in a prompt's template, and no text when generated. */
  | "control"
  /** As control in a prompt, but shown when generated. */
  | "shown-control"
  /** Text that is always this one token. */
  | "user-defined"
  /** One byte that no other token covers. */
  | "byte"
  | "unused";

const kindOfType: readonly (TokenKind | undefined)[] = [
  "unused",
  "normal",
  "control", // the unknown token
  "control",
  "user-defined",
  "unused",
  "byte",
];

const alwaysControl = new Set([
  ..."<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s>".split(
    " ",
  ),
  ..."<|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response>".split(" "),
  ..."<｜end▁of▁sentence｜> [e~[ <|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE>".split(" "),
  ..."<|code_prefix|> <|prefix|> <|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF>".split(" "),
  ..."<|code_suffix|> <|suffix|> <|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID>".split(" "),
  ..."<|code_middle|> <|middle|> <|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|>".split(" "),
  ..."<fim-repo> <REPO> <reponame> <|file_sep|>".split(" "),
]);

const alwaysShown = new Set(["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"]);

/** The kind of every token, by id. */
export function tokenKinds(tokenizer: TokenizerMetadata): TokenKind[] {
  const { tokens, types } = tokenizer;
  const present = new Set(tokens.filter((text) => alwaysControl.has(text)));
  const endIsShown = present.has("<|end|>") && (isHarmony(present) || isSolar(present));
  return tokens.map((text, token) => {
    const kind = kindOfType[types?.[token] ?? 1] ?? "unused";
    if (alwaysShown.has(text)) return kind === "control" ? "shown-control" : "user-defined";
    if (text === "<|end|>" && endIsShown) return "shown-control";
    if (text === "</s>" && present.has("<|tool_response>")) return "normal";
    return present.has(text) ? "control" : kind;
  });
}

function isHarmony(present: ReadonlySet<string>): boolean {
  return present.has("<|return|>") && (present.has("<|call|>") || present.has("<|calls|>"));
}

function isSolar(present: ReadonlySet<string>): boolean {
  return present.has("<|flush|>") && (present.has("<|call|>") || present.has("<|calls|>"));
}

/** The byte a byte token such as "<0x0A>" stands for. */
export function byteOfToken(text: string): number {
  const digits = /^<0x([0-9A-Fa-f]{2})>$/.exec(text)?.[1];
  if (digits !== undefined) return Number.parseInt(digits, 16);
  throw new ServerError(
    "model_file_invalid",
    `the vocabulary marks ${JSON.stringify(text)} as a byte; expected a name like <0x0A>`,
  );
}
