// Byte trie: a set of byte strings. It finds, byte by byte, the strings with which a text begins. The Unigram and
// WordPiece encoders traverse it for every text, so each step must be a single look-up in flat arrays. Nodes are not
// objects, because a vocabulary's trie has up to a million of them.
import { ServerError } from "../../../runtime/errors.ts";

/** Result for a missing node, or for a node at which no string ends. */
export const absent = -1;

const firstSlots = 1024;
/** Maximum number of nodes. A hash key is node * 256 + byte and must fit in 32 bits. */
const maxNodes = 2 ** 24;
const noKey = 0xffffffff;

export class ByteTrie {
  #keys = new Uint32Array(firstSlots).fill(noKey);
  #children = new Int32Array(firstSlots);
  #values: number[] = [absent];

  /** Sets the value of the node at the end of `bytes`. If a string is added twice, the last value is kept. */
  add(bytes: Uint8Array, value: number): void {
    let node = 0;
    for (const byte of bytes) {
      const child = this.child(node, byte);
      node = child === absent ? this.#grow(node, byte) : child;
    }
    this.#values[node] = value;
  }

  /** Returns the child of `node` (0: the root) for `byte`, or `absent`. */
  child(node: number, byte: number): number {
    const slot = this.#slotOf(node * 256 + byte);
    return this.#keys[slot] === noKey ? absent : (this.#children[slot] as number);
  }

  /** Returns the value of the string that ends at `node`, or `absent`. */
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

  /** Returns the slot that holds `key`; if there is none, a free slot for it. */
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
