// Owns keeping user text from turning into control tokens when a chat template weaves it into a prompt. Before rendering, a
// marker character that no text contains is put into every control token's name that user text spells; the encoder cuts the
// prompt at names, then drops the markers. So templates see the user's text as it is, but for such names.
import { ServerError } from "../../runtime/errors.ts";

interface ControlNames {
  /** Names of all control tokens. */
  readonly names: readonly string[];
  /** Those that occur in `text`. */
  namesIn(text: string): readonly string[];
}

export class UserTextGuard {
  private readonly control: ControlNames;
  /** Proper beginnings and ends of names: where user text meets other text, the two together could spell a name. */
  private readonly beginnings = new Set<string>();
  private readonly ends = new Set<string>();
  private readonly longest: number;
  /** One text to search: schemas have thousands of short words, and some vocabularies a thousand names. */
  private readonly allNames: string;

  constructor(control: ControlNames) {
    this.control = control;
    this.longest = Math.max(0, ...control.names.map((name) => name.length));
    this.allNames = control.names.join("\n");
    for (const name of control.names) {
      for (let cut = 1; cut < name.length; cut++) {
        this.beginnings.add(name.slice(0, cut));
        this.ends.add(name.slice(cut));
      }
    }
  }

  /** `text` with `marker` wherever it spells a name, or could spell one with its neighbours. */
  guard(text: string, marker: string): string {
    if (text === "") return text;
    let guarded = text;
    for (const name of this.control.namesIn(text)) {
      const first = String.fromCodePoint(name.codePointAt(0) as number);
      const broken = first + marker + name.slice(first.length);
      // More than once where a name overlaps itself.
      while (guarded.includes(name)) guarded = guarded.replaceAll(name, broken);
    }
    if (this.couldContinue(text)) guarded = marker + guarded;
    if (this.couldBegin(text)) guarded += marker;
    return guarded;
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
 * A character that occurs in none of the texts: a noncharacter, which text has no business with, else one for private use.
 * One pass over the texts, however many candidates they use up. Throws ServerError `invalid_value` if none is left.
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
  throw new ServerError("invalid_value", `${problem}; leave at least one out`, { param: "messages" });
}
