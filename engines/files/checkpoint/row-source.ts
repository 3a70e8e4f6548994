// Row source: describes where the rows of a tensor come from, as plain data: rows stored in files, and how they are reordered or changed.
// engines/quantization/rows/rows.ts reads the rows; row-changes.ts builds the descriptions.

/** Number types of stored rows, with the names of the safetensors format. */
export type StoredType =
  | "F64"
  | "F32"
  | "F16"
  | "BF16"
  | "F8_E4M3"
  | "F8_E5M2"
  | "I8"
  | "U8"
  | "I16"
  | "U16"
  | "I32"
  | "U32"
  | "I64"
  | "U64"
  | "BOOL";

export const storedBytes: Readonly<Record<StoredType, number>> = {
  ...{ F64: 8, F32: 4, F16: 2, BF16: 2, F8_E4M3: 1, F8_E5M2: 1 },
  ...{ I8: 1, U8: 1, I16: 2, U16: 2, I32: 4, U32: 4, I64: 8, U64: 8, BOOL: 1 },
};

interface Size {
  readonly rows: number;
  readonly columns: number;
}

/** Rows stored in a file one after another, little-endian. */
export interface StoredRows extends Size {
  readonly kind: "stored";
  /** Index of the file in the checkpoint's files. */
  readonly file: number;
  readonly offset: number;
  readonly type: StoredType;
}

/** Rows stored in a file one after another, in blocks of a GGUF number type. */
export interface BlockRows extends Size {
  readonly kind: "blocks";
  /** Index of the file in the source's files. */
  readonly file: number;
  readonly offset: number;
  /** GGUF type number. */
  readonly type: number;
}

/** Rows of several sources, one source after the other. */
export interface JoinedRows extends Size {
  readonly kind: "joined";
  readonly parts: readonly RowSource[];
}

/** `count` of each `period` rows of the source: `first`, `first + step` and so on. */
export interface PickedRows extends Size {
  readonly kind: "picked";
  readonly source: RowSource;
  readonly period: number;
  readonly first: number;
  readonly step: number;
  readonly count: number;
}

/** Rows in the order [outer][y][x][inner]; those of the source are in the order [outer][x][y][inner]. */
export interface SwappedRows extends Size {
  readonly kind: "swapped";
  readonly source: RowSource;
  readonly x: number;
  readonly y: number;
  readonly inner: number;
}

/** Like SwappedRows, but for the columns of each row: [y][x][inner] from [x][y][inner]. */
export interface SwappedColumns extends Size {
  readonly kind: "swappedColumns";
  readonly source: RowSource;
  readonly x: number;
  readonly y: number;
  readonly inner: number;
}

/** Columns of each row of the source: runs of `count` columns from `first` on, or of zeros if `first` is null. */
export interface ColumnRuns extends Size {
  readonly kind: "columnRuns";
  readonly source: RowSource;
  readonly runs: readonly { readonly first: number | null; readonly count: number }[];
}

/** Transposed matrices: the source has matrices of `matrixRows` rows, one after another. */
export interface TransposedRows extends Size {
  readonly kind: "transposed";
  readonly source: RowSource;
  readonly matrixRows: number;
}

/** The same values in longer rows: each row consists of several whole rows of the source. */
export interface ReshapedRows extends Size {
  readonly kind: "reshaped";
  readonly source: RowSource;
}

/** Values changed one by one: x + by, x * by, -exp(x), ln(1 + exp(x)), or the largest finite number for an infinity. */
export interface ChangedRows extends Size {
  readonly kind: "shifted" | "scaled" | "negatedExp" | "softplus" | "finite";
  readonly source: RowSource;
  readonly by: number;
}

/** Constant values, repeated from the start until all rows are full. */
export interface GivenRows extends Size {
  readonly kind: "given";
  readonly values: readonly number[];
}

/**
 * Quantised values times a scale for each block of `blockRows` x `blockColumns` values. Each matrix of `matrixRows` rows begins with a new
 * block.
 */
export interface BlockScaledRows extends Size {
  readonly kind: "blockScaled";
  readonly source: RowSource;
  readonly scales: RowSource;
  readonly blockRows: number;
  readonly blockColumns: number;
  readonly matrixRows: number;
}

/**
 * Integers of `bits` bits packed into 32-bit words. A value is (integer - zero point) * scale of its column group (GPTQ, AWQ,
 * compressed-tensors).
 */
export interface PackedIntRows extends Size {
  readonly kind: "packedInts";
  readonly bits: number;
  readonly layout: "gptq" | "awq" | "rows";
  /** Layout gptq: [columns / n][rows]; awq: [columns][rows / n]; rows: [rows][columns / n], where n = integers per word. */
  readonly words: StoredRows;
  /** Scales: [groups][rows]; [rows][groups] for the layout `rows`. */
  readonly scales: RowSource;
  /** Packed zero points: [groups][rows / n]; [rows / n][groups] for `rows`; null = `zero` everywhere. */
  readonly zeros: StoredRows | null;
  /** Zero point if `zeros` is null; else a number added to each stored zero point. */
  readonly zero: number;
  /** Index of each column's group; null = `groupSize` consecutive columns form a group. */
  readonly groups: StoredRows | null;
  readonly groupSize: number;
}

/** 4-bit floats in blocks of 32 with a power-of-two scale each (MXFP4). Byte i has the codes of columns 2i and 2i + 1. */
export interface Mxfp4Rows extends Size {
  readonly kind: "mxfp4";
  /** 4-bit codes, two in each byte (U8): columns / 2 bytes per row. */
  readonly codes: RowSource;
  /** Scales as exponents of 2 (U8): columns / 32 per row. */
  readonly scales: RowSource;
}

/** 4-bit indices into a table, times a scale per block (bitsandbytes). The upper half of a byte comes first. */
export interface CodebookRows extends Size {
  readonly kind: "codebook";
  /** 4-bit indices into `table`, two in each byte (U8), all in one row. */
  readonly codes: StoredRows;
  /** Table of 16 values. */
  readonly table: RowSource;
  /** One scale for each `blockLength` values, in one row. */
  readonly scales: RowSource;
  readonly blockLength: number;
}

/** Table values chosen by stored bytes, times a scale per block, plus an offset (nested scales of bitsandbytes). */
export interface LookedUpRows extends Size {
  readonly kind: "lookedUp";
  readonly codes: StoredRows;
  /** Table of 256 values, one for each value of a stored byte. */
  readonly table: RowSource;
  readonly scales: RowSource;
  readonly blockLength: number;
  readonly offset: number;
}

/**
 * Integers of `bits` bits in a continuous bit stream of little-endian words. A value is integer * scale + offset of its column group (AFQ).
 */
export interface AffineRows extends Size {
  readonly kind: "affine";
  readonly bits: number;
  /** U32, columns * bits / 32 words per row. */
  readonly words: StoredRows;
  /** Scales and offsets, columns / groupSize per row. */
  readonly scales: RowSource;
  readonly offsets: RowSource;
  readonly groupSize: number;
}

/**
 * Integers minus a zero point, times a scale. Value i of the whole tensor has scale and zero point i % n, where n is their number (HQQ with
 * groups along the first dimension).
 */
export interface InterleavedRows extends Size {
  readonly kind: "interleaved";
  /** 8 = one byte per value. 4 = the first half of all values is in the upper half-bytes, the second half in the lower ones. */
  readonly bits: 4 | 8;
  /** The integers before the zero point is subtracted, in bytes (U8), all in one row. */
  readonly codes: StoredRows;
  /** Scales and zero points, each in one row. */
  readonly scales: RowSource;
  readonly zeros: RowSource;
}

/** Blocks of a scale followed by 32 signed bytes (F8Q8). A value is byte * scale / 416; the scale is an 8-bit float (E4M3). */
export interface ScaledByteRows extends Size {
  readonly kind: "scaledBytes";
  /** The blocks as bytes (U8), 33 for each block. */
  readonly blocks: StoredRows;
}

export type RowSource =
  | StoredRows
  | BlockRows
  | JoinedRows
  | PickedRows
  | SwappedRows
  | SwappedColumns
  | ColumnRuns
  | TransposedRows
  | ReshapedRows
  | ChangedRows
  | GivenRows
  | BlockScaledRows
  | PackedIntRows
  | Mxfp4Rows
  | CodebookRows
  | LookedUpRows
  | AffineRows
  | InterleavedRows
  | ScaledByteRows;
