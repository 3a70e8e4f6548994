// JSON scanner: determines, after each character, whether a text is the beginning of a JSON object, a complete object,
// or neither. It stores no text. Takes linear time, however the text is divided into pieces.

type State =
  | "start"
  | "value"
  | "item-or-end"
  | "key-or-end"
  | "key"
  | "colon"
  | "comma-or-end"
  | "string"
  | "escape"
  | "hex"
  | "word"
  | "minus"
  | "zero"
  | "digits"
  | "point"
  | "fraction"
  | "exponent"
  | "exponent-sign"
  | "exponent-digits"
  | "whole"
  | "wrong";

const maxDepth = 128;
const quote = 0x22;
const backslash = 0x5c;
const openBrace = 0x7b;
const closeBrace = 0x7d;
const openBracket = 0x5b;
const closeBracket = 0x5d;
const words = new Map([
  ["t", "true"],
  ["f", "false"],
  ["n", "null"],
]);

export function isJsonSpace(code: number): boolean {
  return code === 0x20 || code === 0x0a || code === 0x0d || code === 0x09;
}

function isDigit(code: number): boolean {
  return code >= 0x30 && code <= 0x39;
}

function isHexDigit(code: number): boolean {
  return isDigit(code) || (code >= 0x41 && code <= 0x46) || (code >= 0x61 && code <= 0x66);
}

export class JsonScanner {
  private state: State = "start";
  /** Open containers, innermost last. True: an object; false: an array. */
  private readonly open: boolean[] = [];
  private isKey = false;
  private hexLeft = 0;
  /** The remaining characters of true, false or null. */
  private word = "";

  /** True if the object is closed. */
  get isWhole(): boolean {
    return this.state === "whole";
  }

  /**
   * Consumes the object's text from `from`. Returns where it stops: at the end of the object, at an invalid
   * character, or at the end of `text`.
   */
  scan(text: string, from: number): number {
    let at = from;
    while (at < text.length && this.state !== "whole") {
      if (this.state === "string") {
        at = this.scanString(text, at);
        continue;
      }
      const before = this.state;
      this.state = this.step(text.charCodeAt(at), text.charAt(at));
      if (this.state === "wrong") return at;
      // The character after a number ends the number and is scanned again.
      if (!(isNumberEnd(before) && this.state === "comma-or-end")) at++;
    }
    return at;
  }

  private scanString(text: string, from: number): number {
    for (let at = from; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code === quote) {
        this.state = this.isKey ? "colon" : "comma-or-end";
        return at + 1;
      }
      if (code === backslash) {
        this.state = "escape";
        return at + 1;
      }
      if (code < 0x20) {
        this.state = "wrong";
        return at;
      }
    }
    return text.length;
  }

  private step(code: number, character: string): State {
    switch (this.state) {
      case "start":
        return code === openBrace ? this.enter(true) : "wrong";
      case "value":
        return isJsonSpace(code) ? "value" : this.beginValue(code, character);
      case "item-or-end":
        if (isJsonSpace(code)) return "item-or-end";
        return code === closeBracket ? this.leave(false) : this.beginValue(code, character);
      case "key-or-end":
        if (code === closeBrace) return this.leave(true);
        return isJsonSpace(code) ? "key-or-end" : this.beginKey(code);
      case "key":
        return isJsonSpace(code) ? "key" : this.beginKey(code);
      case "colon":
        if (isJsonSpace(code)) return "colon";
        return character === ":" ? "value" : "wrong";
      case "comma-or-end":
        return this.afterValue(code, character);
      case "escape":
        if (character !== "u") return '"\\/bfnrt'.includes(character) ? "string" : "wrong";
        this.hexLeft = 4;
        return "hex";
      case "hex":
        if (!isHexDigit(code)) return "wrong";
        this.hexLeft--;
        return this.hexLeft === 0 ? "string" : "hex";
      case "word":
        if (!this.word.startsWith(character)) return "wrong";
        this.word = this.word.slice(1);
        return this.word === "" ? "comma-or-end" : "word";
      default:
        return this.stepNumber(code, character);
    }
  }

  private stepNumber(code: number, character: string): State {
    const mayBeExponent = character === "e" || character === "E";
    switch (this.state) {
      case "minus":
        return character === "0" ? "zero" : isDigit(code) ? "digits" : "wrong";
      case "point":
        return isDigit(code) ? "fraction" : "wrong";
      case "exponent":
        if (character === "+" || character === "-") return "exponent-sign";
        return isDigit(code) ? "exponent-digits" : "wrong";
      case "exponent-sign":
        return isDigit(code) ? "exponent-digits" : "wrong";
      case "zero":
      case "digits":
        if (this.state === "digits" && isDigit(code)) return "digits";
        if (character === ".") return "point";
        return mayBeExponent ? "exponent" : this.endNumber(code, character);
      case "fraction":
        if (isDigit(code)) return "fraction";
        return mayBeExponent ? "exponent" : this.endNumber(code, character);
      case "exponent-digits":
        return isDigit(code) ? "exponent-digits" : this.endNumber(code, character);
      default:
        return "wrong";
    }
  }

  /** Checks the character that follows a number, without consuming it. */
  private endNumber(code: number, character: string): State {
    const mayFollow = isJsonSpace(code) || code === closeBrace || code === closeBracket || character === ",";
    return mayFollow ? "comma-or-end" : "wrong";
  }

  private beginValue(code: number, character: string): State {
    if (code === openBrace) return this.enter(true);
    if (code === openBracket) return this.enter(false);
    if (code === quote) {
      this.isKey = false;
      return "string";
    }
    if (character === "-") return "minus";
    if (character === "0") return "zero";
    if (isDigit(code)) return "digits";
    this.word = words.get(character)?.slice(1) ?? "";
    return this.word === "" ? "wrong" : "word";
  }

  private beginKey(code: number): State {
    if (code !== quote) return "wrong";
    this.isKey = true;
    return "string";
  }

  private afterValue(code: number, character: string): State {
    if (isJsonSpace(code)) return "comma-or-end";
    const isObject = this.open.at(-1) === true;
    if (character === ",") return isObject ? "key" : "value";
    if (code === closeBrace || code === closeBracket) return this.leave(code === closeBrace);
    return "wrong";
  }

  private enter(isObject: boolean): State {
    if (this.open.length === maxDepth) return "wrong";
    this.open.push(isObject);
    return isObject ? "key-or-end" : "item-or-end";
  }

  private leave(isObject: boolean): State {
    if (this.open.pop() !== isObject) return "wrong";
    return this.open.length === 0 ? "whole" : "comma-or-end";
  }
}

function isNumberEnd(state: State): boolean {
  return state === "zero" || state === "digits" || state === "fraction" || state === "exponent-digits";
}
