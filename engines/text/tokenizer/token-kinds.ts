// Token kinds: the kind of each token of a vocabulary (text, control, byte or unused). Model files often declare a
// control token as "normal". So the names that llama.cpp always treats as control tokens are control tokens here too.
import { ServerError } from "../../../runtime/errors.ts";
import { endNames, infillNames } from "../../files/gguf/end-of-generation.ts";
import type { TokenizerMetadata } from "../../files/gguf/metadata.ts";

export type TokenKind =
  /** Token of ordinary text: encoding any text may produce it. */
  | "normal"
  /**
   * Part of the prompt's structure: encoding produces it only where the template contains its name. It has no text when
   * generated.
   */
  | "control"
  /** Like "control" in a prompt, but shown as text when generated. */
  | "shown-control"
  /** Text that is always encoded as a single token. */
  | "user-defined"
  /** One byte. Used for bytes that no other token covers. */
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

const infillPrefixes = words(
  "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|>",
);
const infillSuffixes = words(
  "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|>",
);
const infillMiddles = words(
  "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>",
);

const alwaysControl = new Set([...endNames, ...infillNames, ...infillPrefixes, ...infillSuffixes, ...infillMiddles]);

/**
 * Tokens that precede the parts of an infill prompt: the text before the gap, the text after it, and the gap itself.
 */
export interface InfillTokens {
  readonly prefix: number;
  readonly suffix: number;
  readonly middle: number;
}

/**
 * Returns the infill tokens. Each token is given by the model file or found by a known name. Returns null if a token is
 * missing.
 */
export function infillTokens(tokenizer: TokenizerMetadata): InfillTokens | null {
  const { tokens, infillPrefixId, infillSuffixId, infillMiddleId } = tokenizer;
  const find = (id: number | null | undefined, names: readonly string[]) =>
    id ?? (names.map((name) => tokens.indexOf(name)).find((token) => token >= 0) as number | undefined);
  const prefix = find(infillPrefixId, infillPrefixes);
  const suffix = find(infillSuffixId, infillSuffixes);
  const middle = find(infillMiddleId, infillMiddles);
  return prefix === undefined || suffix === undefined || middle === undefined ? null : { prefix, suffix, middle };
}

function words(text: string): readonly string[] {
  return text.split(" ");
}

const alwaysShown = new Set(["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"]);

/** Returns the kind of every token, by id. */
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

/** Returns the byte of a byte token such as "<0x0A>". */
export function byteOfToken(text: string): number {
  const digits = /^<0x([0-9A-Fa-f]{2})>$/.exec(text)?.[1];
  if (digits !== undefined) return Number.parseInt(digits, 16);
  throw new ServerError(
    "model_file_invalid",
    `the vocabulary marks ${JSON.stringify(text)} as a byte; expected a name like <0x0A>`,
  );
}
