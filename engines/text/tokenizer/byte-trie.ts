// Byte trie: finds which of many byte strings a text begins with, one byte at a time. Unigram and WordPiece walk it over every
// text, so a step is one look-up in flat arrays. A vocabulary's trie has up to a million nodes, so a node is not an object.
import { ServerError } from "../../../runtime/errors.ts";

/** No node, or a node at which no string ends. */
export const absent = -1;

const firstSlots = 1024;
/** A key is node * 256 + byte in 32 bits. */
const maxNodes = 2 ** 24;
const noKey = 0xffffffff;

export class ByteTrie {
  #keys = new Uint32Array(firstSlots).fill(noKey);
  #children = new Int32Array(firstSlots);
  #values: number[] = [absent];

  /** Gives the node reached by `bytes` the value `value`. If a string is added twice, the last value stays. */
  add(bytes: Uint8Array, value: number): void {
    let node = 0;
    for (const byte of bytes) {
      const child = this.child(node, byte);
      node = child === absent ? this.#grow(node, byte) : child;
    }
    this.#values[node] = value;
  }

  /** The child of `node` (0: the root) along `byte`, or `absent`. */
  child(node: number, byte: number): number {
    const slot = this.#slotOf(node * 256 + byte);
    return this.#keys[slot] === noKey ? absent : (this.#children[slot] as number);
  }

  /** The value of the string that ends at `node`, or `absent`. */
  value(node: number): number {
    return this.#values[node] as number;
  }

  #grow(node: number, byte: number): number {
    const child = this.#values.length;
    if (child === maxNodes) {
      throw new ServerError(
        "model_file_invalid",
        `a vocabulary's tokens have more than ${maxNodes} different beginnings`,
      );
    }
    this.#values.push(absent);
    if (child * 2 > this.#keys.length) this.#widen();
    this.#put(node * 256 + byte, child);
    return child;
  }

  #put(key: number, child: number): void {
    const slot = this.#slotOf(key);
    this.#keys[slot] = key;
    this.#children[slot] = child;
  }

  /** The slot that holds `key`, or the free slot for it. */
  #slotOf(key: number): number {
    const last = this.#keys.length - 1;
    const hash = Math.imul(key, 0x9e3779b1);
    let slot = (hash ^ (hash >>> 15)) & last;
    while (this.#keys[slot] !== key && this.#keys[slot] !== noKey) slot = (slot + 1) & last;
    return slot;
  }

  #widen(): void {
    const [keys, children] = [this.#keys, this.#children];
    this.#keys = new Uint32Array(keys.length * 2).fill(noKey);
    this.#children = new Int32Array(keys.length * 2);
    keys.forEach((key, slot) => {
      if (key !== noKey) this.#put(key, children[slot] as number);
    });
  }
}
