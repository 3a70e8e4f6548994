// Copyable rows: byte ranges of a source whose rows already have the target's format, possibly in another order. Such a tensor is copied
// instead of decoded and encoded again.
import { type RowSource, type StoredType, storedBytes } from "../../files/checkpoint/row-source.ts";
import { tensorByteLength } from "../../files/gguf/writer.ts";

export interface ByteRange {
  /** Index of the file in the source's list of files. */
  readonly file: number;
  readonly offset: number;
  readonly bytes: number;
}

/** Types that GGUF stores with the same bytes, by GGUF type number. */
const sameBytes: Readonly<Record<number, StoredType>> = { 0: "F32", 1: "F16", 30: "BF16" };
const f32 = 0;
/** Maximum number of ranges. A source with more ranges is decoded instead. */
const maxRanges = 2 ** 18;

/** Returns the byte ranges that make up a tensor of a GGUF type; null if the source's values must be converted. */
export function copyable(source: RowSource, ggufType: number): readonly ByteRange[] | null {
  if (!isStoredAs(source, ggufType)) return null;
  const ranges: ByteRange[] = [];
  return collect(source, 0, source.rows, ranges) ? ranges : null;
}

function isStoredAs(source: RowSource, type: number): boolean {
  switch (source.kind) {
    case "stored":
      return source.type === sameBytes[type];
    case "blocks":
      // F32 is decoded and encoded again, so that a NaN or an infinity is found.
      return source.type === type && type !== f32;
    case "joined":
      return source.parts.every((part) => isStoredAs(part, type));
    case "picked":
    case "swapped":
    case "reshaped":
      return isStoredAs(source.source, type);
    default:
      return false;
  }
}

/** Adds the byte ranges of `count` rows to `into`. Returns false if there are too many ranges. */
function collect(source: RowSource, first: number, count: number, into: ByteRange[]): boolean {
  switch (source.kind) {
    case "stored": {
      const rowBytes = source.columns * storedBytes[source.type];
      return add(into, { file: source.file, offset: source.offset + first * rowBytes, bytes: count * rowBytes });
    }
    case "blocks": {
      const rowBytes = tensorByteLength(source.type, [source.columns]);
      return add(into, { file: source.file, offset: source.offset + first * rowBytes, bytes: count * rowBytes });
    }
    case "reshaped": {
      const share = source.columns / source.source.columns;
      return collect(source.source, first * share, count * share, into);
    }
    case "joined": {
      let start = 0;
      return source.parts.every((part) => {
        const from = Math.max(first, start);
        const to = Math.min(first + count, start + part.rows);
        const begin = from - start;
        start += part.rows;
        return from >= to || collect(part, begin, to - from, into);
      });
    }
    default:
      return collectRuns(source, first, count, into);
  }
}

function collectRuns(source: RowSource, first: number, count: number, into: ByteRange[]): boolean {
  if (source.kind !== "picked" && source.kind !== "swapped") return false;
  for (let done = 0; done < count; ) {
    const { from, run } = source.kind === "picked" ? pickedRun(source, first + done) : swappedRun(source, first + done);
    const rows = Math.min(run, count - done);
    if (!collect(source.source, from, rows, into)) return false;
    done += rows;
  }
  return true;
}

interface Run {
  /** Index of the row in the source. */
  readonly from: number;
  /** Number of rows, beginning with this row, that are consecutive in the source too. */
  readonly run: number;
}

/** Returns the index in the source of row number `row` of the picked rows, and how many picked rows are consecutive there. */
export function pickedRun(source: Extract<RowSource, { kind: "picked" }>, row: number): Run {
  const { period, first, step, count } = source;
  const place = row % count;
  return { from: Math.floor(row / count) * period + first + place * step, run: step === 1 ? count - place : 1 };
}

/** Returns where a row in the order [y][x][inner] is stored in the source, whose order is [x][y][inner]. */
export function swappedRun(source: Extract<RowSource, { kind: "swapped" }>, row: number): Run {
  const { x, y, inner } = source;
  const size = x * y * inner;
  const block = Math.floor((row % size) / inner);
  const offset = row % inner;
  const from = Math.floor(row / size) * size + ((block % x) * y + Math.floor(block / x)) * inner + offset;
  return { from, run: inner - offset };
}

function add(into: ByteRange[], range: ByteRange): boolean {
  const last = into.at(-1);
  if (last && last.file === range.file && last.offset + last.bytes === range.offset) {
    into[into.length - 1] = { ...last, bytes: last.bytes + range.bytes };
    return true;
  }
  into.push(range);
  return into.length <= maxRanges;
}
