// Owns the table of a "t5" vocabulary that says what characters are replaced before encoding: SentencePiece's compiled map,
// a trie in a double array with XOR-ed child indices, followed by the replacements. Read as llama.cpp reads it. It believes
// nothing that the file says: every index is checked.
import { ServerError } from "../../../../runtime/errors.ts";

// A node: bits 0-7 the byte that leads to it, bit 8 set if a replacement belongs to it, bit 9 whether its base is scaled, bits
// 10-30 the base. A node with bit 31 set holds the offset of a replacement.
const byteMask = 0x800000ff;
const replacedBit = 1 << 8;
const scaledBit = 1 << 9;
const offsetMask = 0x7fffffff;

const countBytes = 4;
/** Of what is replaced: nodes may lead in a circle, and be followed from every byte of a text. Unicode's longest are a tenth. */
const longestMatch = 256;
/** Bytes for each byte replaced. Unicode's most is 11. */
const mostGrowth = 32;

export class CharactersMap {
  /** Where the last match's replacement is in `texts`; it ends before a zero byte. */
  start = 0;
  end = 0;
  readonly texts: Uint8Array;
  readonly #nodes: Uint32Array;

  /** Throws ServerError `model_file_invalid` where `compiled` is no such map. */
  constructor(compiled: readonly number[]) {
    const bytes = Uint8Array.from(compiled);
    const nodeBytes = bytes.length < countBytes ? 0 : new DataView(bytes.buffer).getUint32(0, true);
    if (countBytes + nodeBytes >= bytes.length || nodeBytes === 0 || bytes.at(-1) !== 0) {
      throw damagedMap(`it has ${bytes.length} bytes, of which ${nodeBytes} are to be its table`);
    }
    this.#nodes = new Uint32Array(bytes.slice(countBytes, countBytes + nodeBytes - (nodeBytes % 4)).buffer);
    this.texts = bytes.subarray(countBytes + nodeBytes);
  }

  /** Length of the longest replaceable start of bytes[from..), 0 for none. The replacement is in `start` and `end`. */
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
    if (growth > mostGrowth) throw damagedMap(`it makes ${this.end - found} bytes of ${length}`);
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
  const message = `tokenizer.ggml.precompiled_charsmap is no map of SentencePiece's: ${problem}; fetch the file again`;
  return new ServerError("model_file_invalid", message);
}
