// Text normalizer of "t5" vocabularies: applies the character map of the model file and writes spaces as U+2581. It
// also adds a leading space or merges runs of spaces if the model file requires it. Works on bytes, as llama.cpp does.
import { absent, ByteTrie } from "../byte-trie.ts";
import type { CharactersMap } from "./characters-map.ts";
import { spaceSymbol } from "./encoders.ts";

/** Normalizes a text. Input and output are UTF-8. */
export type Normalizer = (text: Uint8Array) => Uint8Array;

interface NormalizerRules {
  readonly map: CharactersMap | null;
  /**
   * Token texts that normalization does not change. Text that matches only the beginning of one of them is not changed
   * either.
   */
  readonly kept: readonly string[];
  readonly addsSpacePrefix: boolean;
  readonly removesExtraSpaces: boolean;
}

const space = 0x20;
const escapedSpace = [...Buffer.from(spaceSymbol, "utf8")];
const replacement = Buffer.from("\ufffd", "utf8");

export function normalizer({ map, kept, addsSpacePrefix, removesExtraSpaces }: NormalizerRules): Normalizer {
  const keptTrie = new ByteTrie();
  for (const text of kept) keptTrie.add(Buffer.from(text, "utf8"), 0);
  return (text) => {
    const result = new SpacedText(text.length, addsSpacePrefix, removesExtraSpaces);
    for (let at = 0; at < text.length; ) {
      const keptBytes = sharedBytes(keptTrie, text, at);
      const replacedBytes = keptBytes === 0 && map !== null ? map.match(text, at) : 0;
      const bytes = keptBytes || replacedBytes || characterBytes(text[at] as number);
      if (map !== null && replacedBytes > 0) result.push(map.texts, map.start, map.end);
      else if (keptBytes === 0 && isContinuation(text[at] as number)) result.push(replacement, 0, replacement.length);
      else result.push(text, at, at + bytes);
      at += bytes;
    }
    return result.bytes();
  };
}

/** Returns the length in bytes of a UTF-8 character, given its first byte; 1 if that byte is not a valid first byte. */
export function characterBytes(lead: number): number {
  if (lead < 0xc0) return 1;
  if (lead < 0xe0) return 2;
  return lead < 0xf0 ? 3 : 4;
}

/**
 * True for a UTF-8 continuation byte. The text to normalize may begin with such a byte, if the kept or replaced text
 * before it ended inside a character.
 */
function isContinuation(byte: number): boolean {
  return byte >= 0x80 && byte < 0xc0;
}

/**
 * Returns the number of bytes from `start` that match the beginning of a string of the trie, even if the string does
 * not match completely.
 */
function sharedBytes(trie: ByteTrie, text: Uint8Array, start: number): number {
  let end = start;
  for (let node = 0; end < text.length; end++) {
    node = trie.child(node, text[end] as number);
    if (node === absent) break;
  }
  return end - start;
}

/** Output buffer that writes spaces as the model file requires. */
class SpacedText {
  #bytes: Uint8Array;
  #length = 0;
  #isInWord = false;
  #wantsPrefix: boolean;
  readonly #joinsSpaces: boolean;

  constructor(textBytes: number, addsPrefix: boolean, joinsSpaces: boolean) {
    this.#bytes = new Uint8Array(2 * textBytes);
    this.#wantsPrefix = addsPrefix;
    this.#joinsSpaces = joinsSpaces;
  }

  push(source: Uint8Array, start: number, end: number): void {
    this.#makeRoom(end - start);
    for (let at = start; at < end; at++) {
      const byte = source[at] as number;
      if (byte !== space) this.#pushVisible(byte);
      else {
        this.#isInWord = false;
        if (!this.#joinsSpaces) this.#pushSpace();
      }
    }
  }

  bytes(): Uint8Array {
    return this.#bytes.subarray(0, this.#length);
  }

  #pushVisible(byte: number): void {
    if (!this.#isInWord) {
      this.#isInWord = true;
      if (this.#wantsPrefix || this.#joinsSpaces) this.#pushSpace();
      this.#wantsPrefix = false;
    }
    this.#bytes[this.#length++] = byte;
  }

  #pushSpace(): void {
    for (const byte of escapedSpace) this.#bytes[this.#length++] = byte;
  }

  /** Makes room for more input bytes. A space may be written as several bytes, and a leading space may be added. */
  #makeRoom(bytes: number): void {
    const most = this.#length + (bytes + 1) * (escapedSpace.length + 1);
    if (most <= this.#bytes.length) return;
    const wider = new Uint8Array(most * 2);
    wider.set(this.bytes());
    this.#bytes = wider;
  }
}
