// Characters map: the character replacements of a "t5" vocabulary, applied before encoding. The format is SentencePiece's
// compiled map, read as llama.cpp reads it: a trie in a double array with XOR-ed child indices, followed by the replacements.
// Every index from the file is checked.
import { ServerError } from "../../../../runtime/errors.ts";

// A node: bits 0-7 are the byte that leads to it, bit 8 is set if it has a replacement, bit 9 if its base is scaled, bits 10-30
// are the base. A node with bit 31 set holds the offset of a replacement.
const byteMask = 0x800000ff;
const replacedBit = 1 << 8;
const scaledBit = 1 << 9;
const offsetMask = 0x7fffffff;

const countBytes = 4;
/** Bytes replaced at once, at most: nodes may form a circle that every byte of a text follows. Unicode's longest are a tenth. */
const longestMatch = 256;
/** Replacement bytes per replaced byte, at most. Unicode's maximum is 11. */
const mostGrowth = 32;

export class CharactersMap {
  /** Bounds of the last match's replacement in `texts`, without its terminating zero byte. */
  start = 0;
  end = 0;
  readonly texts: Uint8Array;
  readonly #nodes: Uint32Array;

  /** Throws ServerError `model_file_invalid` if `compiled` is not a valid map. */
  constructor(compiled: readonly number[]) {
    const bytes = Uint8Array.from(compiled);
    const nodeBytes = bytes.length < countBytes ? 0 : new DataView(bytes.buffer).getUint32(0, true);
    if (countBytes + nodeBytes >= bytes.length || nodeBytes === 0 || bytes.at(-1) !== 0) {
      throw damagedMap(`it has ${bytes.length} bytes, but its table should have ${nodeBytes}`);
    }
    this.#nodes = new Uint32Array(bytes.slice(countBytes, countBytes + nodeBytes - (nodeBytes % 4)).buffer);
    this.texts = bytes.subarray(countBytes + nodeBytes);
  }

  /** Length of the longest replaceable prefix of bytes[from..), 0 if none. `start` and `end` then bound its replacement. */
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
