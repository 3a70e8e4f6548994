// Spacing: how a tokenizer.json writes the spaces of a text as U+2581 and adds a space before the text. Different versions
// of the tokenizers library use different steps for that.
import { type JsonField, quoted } from "../../../json-field.ts";
import { type TokenizerJson, typeOf } from "../source/tokenizer-json.ts";
import { spaceSymbol, type Warn } from "../token-table.ts";

export interface Spacing {
  /** Whether spaces are written as U+2581. */
  readonly writesSpaces: boolean;
  readonly addsPrefix: boolean;
  /** Whether words are encoded separately. */
  readonly splitsWords: boolean;
  /** Whether runs of white space count as one space. */
  readonly joinsSpaces: boolean;
  /** Whether white space around a text is removed. */
  readonly strips: boolean;
  /** Steps that do not concern spaces. */
  readonly others: readonly JsonField[];
}

/** Returns how the steps of a file treat spaces. */
export function spacingOf({ normalizers, preTokenizers }: TokenizerJson, warn: Warn): Spacing {
  const spacing = { writesSpaces: false, addsPrefix: false, splitsWords: false, joinsSpaces: false, strips: false };
  const others: JsonField[] = [];
  for (const step of [...normalizers, ...preTokenizers]) {
    const type = typeOf(step);
    if (type === "Prepend" && step.get("prepend").text() === spaceSymbol) spacing.addsPrefix = true;
    else if (isSpaceReplacement(step)) spacing.writesSpaces = true;
    else if (type === "Metaspace") Object.assign(spacing, metaspace(step, warn), { writesSpaces: true });
    else if (type === "WhitespaceSplit") Object.assign(spacing, { splitsWords: true, joinsSpaces: true });
    else if (isRunReplacement(step)) spacing.joinsSpaces = true;
    else if (type === "Strip") spacing.strips = true;
    else if (!(spacing.writesSpaces && splitsAtSpaces(step))) others.push(step);
  }
  const hasMetaspace = preTokenizers.some((step) => typeOf(step) === "Metaspace");
  if (hasMetaspace && spacing.addsPrefix && !spacing.joinsSpaces) {
    warn("a space is also added before a text that begins with one");
  }
  return { ...spacing, others };
}

function isSpaceReplacement(step: JsonField): boolean {
  const isSpace = step.get("pattern").get("String").value === " ";
  return typeOf(step) === "Replace" && isSpace && step.get("content").value === spaceSymbol;
}

/** Whether a step replaces a run of spaces by one space. */
function isRunReplacement(step: JsonField): boolean {
  const isRun = [" {2,}", " +", "  +"].includes(String(step.get("pattern").get("Regex").value));
  return typeOf(step) === "Replace" && isRun && [" ", spaceSymbol].includes(String(step.get("content").value));
}

/** Whether a step splits at spaces, which has no effect once the spaces are replaced. */
function splitsAtSpaces(step: JsonField): boolean {
  return typeOf(step) === "Split" && step.get("pattern").get("String").value === " ";
}

function metaspace(step: JsonField, warn: Warn): Pick<Spacing, "addsPrefix" | "splitsWords"> {
  const symbol = step.get("replacement").text() ?? spaceSymbol;
  if (symbol !== spaceSymbol) {
    throw step.get("replacement").invalid(`is ${quoted(symbol)}; expected "${spaceSymbol}", use a GGUF file`);
  }
  const adds = step.get("add_prefix_space").flag() ?? true;
  const scheme = step.get("prepend_scheme").text() ?? (adds ? "always" : "never");
  if (!["always", "first", "never"].includes(scheme)) {
    throw step.get("prepend_scheme").invalid(`is ${quoted(scheme)}; expected always, first or never`);
  }
  if (scheme === "first") warn("a space is also added before text that follows a control token");
  return { addsPrefix: scheme !== "never", splitsWords: step.get("split").flag() ?? true };
}
