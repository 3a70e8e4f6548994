// Owns keeping user text from turning into control tokens when a chat template weaves it into a prompt. Before rendering, a
// marker character that no text contains is put into every control token's name that user text spells; the encoder cuts the
// prompt at names, then drops the markers. So templates see the user's text as it is, but for such names.

export interface ControlNames {
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

  constructor(control: ControlNames) {
    this.control = control;
    this.longest = Math.max(0, ...control.names.map((name) => name.length));
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
    return text.length < this.longest && this.control.names.some((name) => name.includes(text));
  }

  private couldBegin(text: string): boolean {
    for (let length = 1; length <= text.length && length < this.longest; length++) {
      if (this.beginnings.has(text.slice(-length))) return true;
    }
    return false;
  }
}

const firstNoncharacter = 0xfdd0;
const firstSupplementary = 0x10000;

/** A character that occurs in none of the texts. There always is one: no text is long enough to hold them all. */
export function chooseMarker(texts: readonly string[]): string {
  for (let codePoint = firstNoncharacter; ; codePoint++) {
    // The 32 noncharacters first; text has no business with them, and after them whatever is free.
    if (codePoint === firstNoncharacter + 32) codePoint = firstSupplementary;
    const marker = String.fromCodePoint(codePoint);
    if (!texts.some((text) => text.includes(marker))) return marker;
  }
}
