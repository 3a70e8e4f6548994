// User text guard: prevents user text from becoming control tokens when a chat template inserts it into a prompt.
// Before rendering, a marker character is inserted into every control token name in user text. The marker occurs in no
// other text. The encoder splits the prompt at control token names and then removes the markers. Many templates remove
// words from a text, for example "/think". The texts before and after a removed word could then form a name, so markers
// are inserted there too.
import { ServerError } from "../../../runtime/errors.ts";

interface ControlNames {
  /** Names of all control tokens. */
  readonly names: readonly string[];
  /** Returns the names that occur in `text`. */
  namesIn(text: string): readonly string[];
}

export class UserTextGuard {
  private readonly control: ControlNames;
  /**
   * Proper prefixes (`beginnings`) and suffixes (`ends`) of control token names. User text that ends or begins with one
   * of them could form a name together with neighbouring text.
   */
  private readonly beginnings = new Set<string>();
  private readonly ends = new Set<string>();
  private readonly longest: number;
  /**
   * Names of all control tokens, joined by line feeds. One search in this string tells whether a text is part of any
   * name. It is fast, even for schemas with thousands of short words and vocabularies with a thousand names.
   */
  private readonly allNames: string;
  /** Words that the template may remove from a text, or at which it may split a text. */
  private readonly removed: readonly string[];
  /**
   * Proper prefixes of control token names and of the words that the template removes. Removed words matter, because
   * the texts before and after a removed word could together form another removed word.
   */
  private readonly partial = new Set<string>();
  /** All control token names, and all words that the template removes. */
  private readonly whole: ReadonlySet<string>;

  constructor(control: ControlNames, removed: readonly string[] = []) {
    this.control = control;
    this.removed = removed;
    this.whole = new Set([...control.names, ...removed]);
    this.longest = Math.max(0, ...control.names.map((name) => name.length));
    this.allNames = control.names.join("\n");
    for (const name of control.names) {
      for (let cut = 1; cut < name.length; cut++) {
        this.beginnings.add(name.slice(0, cut));
        this.ends.add(name.slice(cut));
      }
    }
    if (removed.length === 0) return;
    for (const text of this.whole) {
      for (let cut = 1; cut < text.length; cut++) this.partial.add(text.slice(0, cut));
    }
  }

  /**
   * Inserts `marker` into every control token name in `text`. Also adds a marker at the start or end of `text` if
   * that end could form a name together with neighbouring text.
   */
  guard(text: string, marker: string): string {
    if (text === "") return text;
    let guarded = text;
    for (const name of this.control.namesIn(text)) {
      const first = String.fromCodePoint(name.codePointAt(0) as number);
      const broken = first + marker + name.slice(first.length);
      // The replacement is repeated, because occurrences of a name may overlap.
      while (guarded.includes(name)) guarded = guarded.replaceAll(name, broken);
    }
    if (this.removed.some((word) => guarded.includes(word))) guarded = this.guardRemovals(guarded, marker);
    if (this.couldContinue(text)) guarded = marker + guarded;
    if (this.couldBegin(text)) guarded += marker;
    return this.guardTrimmed(guarded, marker);
  }

  /**
   * Inserts a marker before a removed word if the text before the word ends with a prefix of a name or of another
   * removed word. The marker stays when the template removes the word. So the texts before and after the word cannot
   * form a name, whatever the order in which words are removed.
   */
  private guardRemovals(text: string, marker: string): string {
    const cuts = new Set<number>();
    for (let from = 0; from < text.length; from++) {
      for (let at = from + 1; this.partial.has(text.slice(from, at)); at++) {
        if (!cuts.has(at) && this.isJoined(text, from, at)) cuts.add(at);
        if (at >= text.length) break;
      }
    }
    let guarded = "";
    let end = 0;
    for (const at of [...cuts].sort((a, b) => a - b)) {
      guarded += text.slice(end, at) + marker;
      end = at;
    }
    return guarded + text.slice(end);
  }

  /**
   * True if a removed word begins at `at`, and text[from .. at) could join with other text when the
   * template has removed the word.
   */
  private isJoined(text: string, from: number, at: number): boolean {
    for (const word of this.removed) {
      if (!text.startsWith(word, at)) continue;
      const after = at + word.length;
      // Inside an occurrence of a longer removed word, a marker is needed only if text[from .. at) could
      // join with the text after `word`.
      if (!this.isWithin(text, at) || after === text.length || this.isRemovedAt(text, after)) return true;
      const joined = text.slice(from, at) + text.charAt(after);
      if (this.partial.has(joined) || this.whole.has(joined)) return true;
    }
    return false;
  }

  /** True if an occurrence of a removed word begins before `at` and ends after `at`. */
  private isWithin(text: string, at: number): boolean {
    return this.removed.some((word) =>
      text.slice(Math.max(0, at - word.length + 1), at + word.length - 1).includes(word),
    );
  }

  private isRemovedAt(text: string, at: number): boolean {
    return this.removed.some((word) => text.startsWith(word, at));
  }

  /** Adds markers inside leading and trailing white space too, because a template may remove this white space. */
  private guardTrimmed(text: string, marker: string): string {
    const inner = text.trim();
    if (inner.length === text.length || inner === "") return text;
    const start = text.length - text.trimStart().length;
    const before = this.couldContinue(inner) ? marker : "";
    const after = this.couldBegin(inner) ? marker : "";
    return text.slice(0, start) + before + inner + after + text.slice(start + inner.length);
  }

  private couldContinue(text: string): boolean {
    for (let length = 1; length <= text.length && length < this.longest; length++) {
      if (this.ends.has(text.slice(0, length))) return true;
    }
    return text.length < this.longest && this.allNames.includes(text);
  }

  private couldBegin(text: string): boolean {
    for (let length = 1; length <= text.length && length < this.longest; length++) {
      if (this.beginnings.has(text.slice(-length))) return true;
    }
    return false;
  }
}

const markerCandidates = /[\ufdd0-\ufdef\ue000-\uf8ff]/g;

/**
 * Returns a character that occurs in none of the texts. Prefers Unicode noncharacters, which text should not contain,
 * to private-use characters. Takes one pass over the texts, however many characters are in use. Throws ServerError
 * `invalid_value` if all characters are in use.
 */
export function chooseMarker(texts: readonly string[]): string {
  const used = new Set(texts.flatMap((text) => text.match(markerCandidates) ?? []));
  return firstFree(0xfdd0, 0xfdef, used) ?? firstFree(0xe000, 0xf8ff, used) ?? refuse();
}

function firstFree(from: number, to: number, used: ReadonlySet<string>): string | null {
  for (let code = from; code <= to; code++) {
    const character = String.fromCharCode(code);
    if (!used.has(character)) return character;
  }
  return null;
}

function refuse(): never {
  const problem = "the messages use every one of the 6,432 private-use and noncharacter code points of the basic plane";
  throw new ServerError("invalid_value", `${problem}; remove at least one of them`, { param: "messages" });
}
