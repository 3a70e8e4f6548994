// Exact words: cut a text into words as the pre-tokenizers of Hugging Face's tokenizers package do.
import { ServerError } from "../../../../runtime/errors.ts";
import { exactRulesKey, type WordRule } from "../../../files/tokenizer-rules.ts";
import { spaceSymbol } from "../encoding/encoders.ts";
import { findPreTokenizer } from "../encoding/pre-tokenizers.ts";
import { splitWords } from "../encoding/word-rules.ts";
import { whiteSpace } from "./normalizers.ts";
import { exactPatterns } from "./patterns.ts";
import { bertPunctuation, unknownToPatterns } from "./unicode-versions.ts";

/**
 * Calls `emit` with the words of a part of a text. `isFirst`: the part, or the word, is at the beginning of the whole
 * text.
 */
type Cut = (part: string, isFirst: boolean, emit: (word: string, isFirst: boolean) => void) => void;

const visible = new RegExp(`[^${whiteSpace}]+`, "gu");
const bertWords = new RegExp(`[${bertPunctuation}]|[^${whiteSpace}[${bertPunctuation}]]+`, "gv");

/** Returns a function that applies the rules in order. Each rule cuts the words of the previous rule. */
export function wordCutter(rules: readonly WordRule[]): Cut {
  const cuts = rules.map(cutOf);
  const apply = (
    depth: number,
    part: string,
    isFirst: boolean,
    emit: (word: string, isFirst: boolean) => void,
  ): void => {
    const cut = cuts[depth];
    if (part === "") return;
    if (cut === undefined) emit(part, isFirst);
    else cut(part, isFirst, (word, first) => apply(depth + 1, word, first, emit));
  };
  return (part, isFirst, emit) => apply(0, part, isFirst, emit);
}

function cutOf(rule: WordRule): Cut {
  switch (rule.type) {
    case "Patterns":
      return patternCut(rule.name);
    case "PrefixSpace":
      return (part, isFirst, emit) => emit(part.startsWith(" ") ? part : ` ${part}`, isFirst);
    case "WhitespaceSplit":
      return matches(visible);
    case "BertPreTokenizer":
      return matches(bertWords);
    case "Spaces":
      return (part, isFirst, emit) => splitAfter(part, " ", isFirst, emit);
    case "Metaspace":
      return (part, isFirst, emit) => {
        const spelled = part.replaceAll(" ", spaceSymbol);
        const adds = rule.scheme === "always" || (rule.scheme === "first" && isFirst);
        const prefixed = adds && !spelled.startsWith(spaceSymbol) ? spaceSymbol + spelled : spelled;
        if (rule.splits) splitBefore(prefixed, spaceSymbol, isFirst, emit);
        else emit(prefixed, isFirst);
      };
    default:
      throw new ServerError(
        "model_file_invalid",
        `${exactRulesKey} has an unknown rule for words; convert the model again`,
      );
  }
}

function patternCut(name: string): Cut {
  const rules = exactPatterns(name) ?? findPreTokenizer(name)?.rules;
  if (rules === undefined) {
    throw new ServerError(
      "model_file_invalid",
      `${exactRulesKey} has an unknown name ${JSON.stringify(name)}; convert the model again`,
    );
  }
  return (part, isFirst, emit) => {
    let first = isFirst;
    splitWords(
      part,
      rules,
      (word) => {
        emit(word, first);
        first = false;
      },
      unknownToPatterns,
    );
  };
}

function matches(pattern: RegExp): Cut {
  return (part, isFirst, emit) => {
    for (const { 0: word, index } of part.matchAll(pattern)) emit(word, isFirst && index === 0);
  };
}

/** Cuts `text` before each occurrence of the character `mark`. */
function splitBefore(text: string, mark: string, isFirst: boolean, emit: Parameters<Cut>[2]): void {
  let start = 0;
  for (let at = text.indexOf(mark, 1); at > 0; at = text.indexOf(mark, at + 1)) {
    emit(text.slice(start, at), isFirst && start === 0);
    start = at;
  }
  emit(text.slice(start), isFirst && start === 0);
}

/** Cuts `text` after each occurrence of the character `mark`. */
function splitAfter(text: string, mark: string, isFirst: boolean, emit: Parameters<Cut>[2]): void {
  let start = 0;
  for (let at = text.indexOf(mark); at >= 0; at = text.indexOf(mark, at + 1)) {
    emit(text.slice(start, at + 1), isFirst && start === 0);
    start = at + 1;
  }
  if (start < text.length) emit(text.slice(start), isFirst && start === 0);
}
