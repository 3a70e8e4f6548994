// Exact encoder: converts text to tokens by the exact rules of a tokenizer.json. Control tokens were already removed
// from the text; the other added tokens are found here. Created by encoding-plan.ts.

import type { TokenizerMetadata } from "../../../files/gguf/metadata.ts";
import type { ExactRules } from "../../../files/tokenizer-rules.ts";
import { CharactersMap } from "../encoding/characters-map.ts";
import type { Encoder } from "../encoding/encoders.ts";
import type { TokenKind } from "../token-kinds.ts";
import { AddedTokens } from "./added-tokens.ts";
import { wordEncoder } from "./models.ts";
import { normalizerOf } from "./normalizers.ts";
import { wordCutter } from "./words.ts";

export function exactEncoder(
  tokenizer: TokenizerMetadata,
  kinds: readonly TokenKind[],
  ids: ReadonlyMap<string, number>,
  rules: ExactRules,
): Encoder {
  const { charactersMap = null } = tokenizer;
  const map = charactersMap === null || charactersMap.length === 0 ? null : new CharactersMap(charactersMap);
  const steps = rules.normalizers.map((rule) => normalizerOf(rule, map));
  const normalize = (text: string) => steps.reduce((changed, step) => step(changed), text);
  const { plain, normalized } = addedTokens(tokenizer, kinds, rules, normalize);
  const cut = wordCutter(rules.words);
  const encodeWord = wordEncoder({ tokenizer, kinds, ids, rules });
  return (text, output, isFirst = true) => {
    const push = (id: number) => output.push(id);
    const encodePart = (part: string, first: boolean) => cut(part, first, (word) => encodeWord(word, output));
    plain.split(
      text,
      (part, first) =>
        normalized.split(normalize(part), (own, isOwn) => encodePart(own, isFirst && first && isOwn), push),
      push,
    );
  };
}

/**
 * Returns the user-defined tokens: `plain` are searched before a text is normalized, `normalized` in the normalized
 * text.
 */
function addedTokens(
  { tokens }: TokenizerMetadata,
  kinds: readonly TokenKind[],
  { added }: ExactRules,
  normalize: (text: string) => string,
) {
  const ruled = new Map(added.map((token) => [token.id, token]));
  const own = kinds.flatMap((kind, id) => {
    if (kind !== "user-defined") return [];
    const { normalized = false, rules = [] } = ruled.get(id) ?? {};
    const text = tokens[id] as string;
    const has = (rule: string) => rules.includes(rule);
    return [
      {
        ...{ id, normalized, text: normalized ? normalize(text) : text },
        ...{ takesBefore: has("lstrip"), takesAfter: has("rstrip"), isWord: has("single_word") },
      },
    ];
  });
  return {
    plain: new AddedTokens(own.filter(({ normalized }) => !normalized)),
    normalized: new AddedTokens(own.filter(({ normalized }) => normalized)),
  };
}
