// Post-processor of a tokenizer.json: the special tokens that it puts around a text and between two texts.

import { type JsonField, quoted } from "../../json-field.ts";
import { type TokenizerJson, typeOf } from "./source/tokenizer-json.ts";
import type { Warn } from "./token-table.ts";

export interface Wrapping {
  /** Token before a text (`first`) and token after it (`last`); null = none. */
  readonly first: string | null;
  readonly last: string | null;
  /** Tokens between two texts; null = unknown. */
  readonly between: readonly string[] | null;
}

const maxParts = 64;

/** Returns the special tokens around a text; none if no step adds any. */
export function wrappingOf({ postProcessors }: TokenizerJson, warn: Warn): Wrapping {
  let wrapping: Wrapping = { first: null, last: null, between: null };
  for (const step of postProcessors) {
    const type = typeOf(step);
    if (type === "TemplateProcessing") wrapping = templateWrapping(step, warn);
    else if (type === "RobertaProcessing" || type === "BertProcessing") {
      const [first, last] = [nameIn(step.get("cls")), nameIn(step.get("sep"))];
      wrapping = { first, last, between: type === "RobertaProcessing" ? [last, last] : [last] };
    } else if (type !== "ByteLevel") throw step.invalid(`is ${quoted(type)}, which is not known`);
  }
  return wrapping;
}

/** Returns the text of a token that is written as [text, id]. */
function nameIn(field: JsonField): string {
  const text = field.elements(maxParts)[0];
  if (text === undefined) throw field.invalid("is missing; expected a token's text and id");
  return text.required(text.text());
}

function templateWrapping(step: JsonField, warn: Warn): Wrapping {
  const single = tokensOf(step.get("single"));
  const text = single.indexOf(null);
  const [before, after] = text < 0 ? [[], []] : [single.slice(0, text), single.slice(text + 1)];
  if (before.length > 1 || after.length > 1) {
    warn(`only one token is added on each side of a text: ${before[0] ?? "none"} and ${after.at(-1) ?? "none"}`);
  }
  const [first, last] = [before[0] ?? null, after.at(-1) ?? null];
  const pair = tokensOf(step.get("pair"));
  const between = pair.slice(pair.indexOf(null) + 1, pair.lastIndexOf(null)).filter((token) => token !== null);
  return { first, last, between: pair.length === 0 ? null : between };
}

/** Returns the parts of a template: a special token's name, or null for a text. */
function tokensOf(template: JsonField): (string | null)[] {
  return template.elements(maxParts).map((part) => part.get("SpecialToken").get("id").text());
}
