// Characters map: the character replacements of a "t5" vocabulary, applied before encoding. The format is
// SentencePiece's compiled map, read as llama.cpp reads it. It is a trie in a double array with XOR-ed child indices,
// followed by the replacements. Every index from the file is checked.
import { ServerError } from "../../../../runtime/errors.ts";

// Layout of a node: bits 0-7 are the byte that leads to the node, bit 8 is set if the node has a replacement, bit 9 is
// set if its base is scaled, and bits 10-30 are the base. If bit 31 is set, the node holds the offset of a replacement.
const byteMask = 0x800000ff;
const replacedBit = 1 << 8;
const scaledBit = 1 << 9;
const offsetMask = 0x7fffffff;

const decoder = new TextDecoder();
const countBytes = 4;
/**
 * Maximum number of bytes replaced at once. A limit is needed, because the nodes in a file may form a cycle. The
 * longest replaceable text in Unicode has a tenth of this length.
 */
const longestMatch = 256;
/** Maximum number of replacement bytes per replaced byte. The maximum in Unicode is 11. */
const mostGrowth = 32;

export class CharactersMap {
  /**
   * Start and end in `texts` of the replacement that the last match() has found. The terminating zero byte is not
   * included.
   */
  start = 0;
  end = 0;
  readonly texts: Uint8Array;
  readonly #nodes: Uint32Array;

  /** Reads a compiled map. Throws ServerError `model_file_invalid` if it is not valid. */
  constructor(compiled: readonly number[]) {
    const bytes = Uint8Array.from(compiled);
    const nodeBytes = bytes.length < countBytes ? 0 : new DataView(bytes.buffer).getUint32(0, true);
    if (countBytes + nodeBytes >= bytes.length || nodeBytes === 0 || bytes.at(-1) !== 0) {
      throw damagedMap(`it has ${bytes.length} bytes, but its table should have ${nodeBytes}`);
    }
    this.#nodes = new Uint32Array(bytes.slice(countBytes, countBytes + nodeBytes - (nodeBytes % 4)).buffer);
    this.texts = bytes.subarray(countBytes + nodeBytes);
  }

  /**
   * Returns the length of the longest replaceable text that begins at bytes[from]; 0 if none. Sets `start` and `end` to
   * the bounds of its replacement.
   */
  match(bytes: Uint8Array, from: number): number {
    let length = 0;
    let found = 0;
    let index = baseOf(this.#node(0));
    const limit = Math.min(from + longestMatch, bytes.length);
    for (let at = from; at < limit; at++) {
      const byte = bytes[at] as number;
      if (byte === 0) break;
      index ^= byte;
      const node = this.#node(index);
      if ((node & byteMask) >>> 0 !== byte) break;
      index ^= baseOf(node);
      if ((node & replacedBit) === 0) continue;
      length = at - from + 1;
      found = this.#node(index) & offsetMask;
    }
    if (length === 0) return 0;
    if (found >= this.texts.length) throw damagedMap(`a replacement is at byte ${found} of ${this.texts.length}`);
    this.start = found;
    this.end = this.texts.indexOf(0, found);
    const growth = (this.end - found) / length;
    if (growth > mostGrowth)
      throw damagedMap(
        `it turns ${length} bytes into ${this.end - found}; expected at most ${mostGrowth} for each byte`,
      );
    return length;
  }

  /** Returns the replacement of the shortest replaceable beginning of `bytes`; null if there is none. */
  shortest(bytes: Uint8Array): string | null {
    let index = baseOf(this.#node(0));
    for (const byte of bytes) {
      if (byte === 0) return null;
      index ^= byte;
      const node = this.#node(index);
      if ((node & byteMask) >>> 0 !== byte) return null;
      index ^= baseOf(node);
      if ((node & replacedBit) === 0) continue;
      const start = this.#node(index) & offsetMask;
      if (start >= this.texts.length) throw damagedMap(`a replacement is at byte ${start} of ${this.texts.length}`);
      return decoder.decode(this.texts.subarray(start, this.texts.indexOf(0, start)));
    }
    return null;
  }

  #node(index: number): number {
    const node = this.#nodes[index];
    if (node === undefined) throw damagedMap(`it refers to node ${index} of ${this.#nodes.length}`);
    return node;
  }
}

function baseOf(node: number): number {
  return (node >>> 10) << ((node & scaledBit) >>> 6);
}

function damagedMap(problem: string): ServerError {
  const message = `tokenizer.ggml.precompiled_charsmap is not a valid SentencePiece map: ${problem}; download the file again`;
  return new ServerError("model_file_invalid", message);
}
