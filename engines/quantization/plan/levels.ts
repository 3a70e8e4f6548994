// Quantization levels: values of the settings `isq` and `quant`, and the number types that they stand for.
import { ServerError } from "../../../runtime/errors.ts";
import { suggestion } from "../../../runtime/nearest.ts";
import { type TensorTypeName, tensorType } from "../../files/gguf/tensors.ts";

/** A quantization level. All types are GGUF type numbers. */
export interface Level {
  /** Name as in GGUF, for example Q4_K. */
  readonly name: string;
  /** Type of the matrices of the layers. */
  readonly type: number;
  /** Type of token embeddings and output matrix: usually one level more precise, because every token passes through them. */
  readonly endsType: number;
  /** Note for the user about the level that replaces the given name, if that name belongs to another format; else null. */
  readonly note: string | null;
}

type LevelName = Extract<
  TensorTypeName,
  | ("F32" | "F16" | "BF16" | "Q4_0" | "Q4_1" | "Q5_0" | "Q5_1" | "Q8_0")
  | ("Q2_K" | "Q3_K" | "Q4_K" | "Q5_K" | "Q6_K" | "IQ4_NL" | "IQ4_XS" | "MXFP4")
>;

/** Type of token embeddings and output matrix, by the type of the other matrices. */
const oneUp: Readonly<Record<LevelName, LevelName>> = {
  F32: "F32",
  F16: "F16",
  BF16: "BF16",
  Q2_K: "Q3_K",
  Q3_K: "Q4_K",
  Q4_K: "Q5_K",
  Q5_K: "Q6_K",
  Q6_K: "Q8_0",
  Q4_0: "Q5_0",
  Q4_1: "Q5_1",
  Q5_0: "Q8_0",
  Q5_1: "Q8_0",
  Q8_0: "Q8_0",
  IQ4_NL: "Q5_0",
  IQ4_XS: "Q5_K",
  MXFP4: "Q8_0",
};

/**
 * Types for rows whose length is not a multiple of the type's block. The replacement has blocks of 32 values and at least as many
 * bits.
 */
const forOddRows: ReadonlyMap<number, number> = new Map(
  (
    [
      ["Q2_K", "Q4_0"],
      ["Q3_K", "Q4_0"],
      ["IQ4_XS", "IQ4_NL"],
      ["Q4_K", "Q5_0"],
      ["Q5_K", "Q5_1"],
      ["Q6_K", "Q8_0"],
    ] as const
  ).map(([from, to]) => [tensorType(from), tensorType(to)]),
);

/** Level for each number of bits. */
const levelOfBits: Readonly<Record<string, LevelName>> = {
  "2": "Q2_K",
  "3": "Q3_K",
  "4": "Q4_K",
  "5": "Q5_K",
  "6": "Q6_K",
  "8": "Q8_0",
};

/** Levels of other formats, and the closest level for each. */
const foreign: Readonly<Record<string, LevelName>> = {
  AFQ2: "Q2_K",
  AFQ3: "Q3_K",
  AFQ4: "Q4_K",
  AFQ6: "Q6_K",
  AFQ8: "Q8_0",
  HQQ4: "Q4_1",
  HQQ8: "Q8_0",
  F8E4M3: "Q8_0",
  F8Q8: "Q8_0",
  Q8_1: "Q8_0",
  Q8_K: "Q8_0",
};

const names = Object.keys(oneUp) as readonly LevelName[];

/**
 * Returns the level that `given` names: a number of bits (2, 3, 4, 5, 6, 8) or a type, with or without underscores, in any
 * case. `setting` is the key that the error names. Throws config_invalid.
 */
export function parseLevel(given: string | number, setting: string): Level {
  const text = String(given).trim();
  const spelled = text.toUpperCase().replaceAll(/[_-]/g, "");
  const isSpelled = (name: string) => name.replaceAll("_", "") === spelled;
  const bits = Object.hasOwn(levelOfBits, text) ? levelOfBits[text] : undefined;
  const own = bits ?? names.find(isSpelled);
  if (own !== undefined) return levelOf(own, null);
  const other = Object.keys(foreign).find(isSpelled);
  if (other !== undefined) {
    const name = foreign[other] as LevelName;
    return levelOf(name, `${other} is a type of another format; ${name} takes its place`);
  }
  const known = `${Object.keys(levelOfBits).join(", ")} bits, or ${names.join(", ")}`;
  const near = suggestion(text.toUpperCase(), names);
  throw new ServerError("config_invalid", `${setting} expects ${known}; got "${text}"${near}`, { param: setting });
}

/** Returns the quantisation names, such as Q4_K_M, of files whose matrices mostly have the level's type, best first. */
export function artifactNames({ name }: Level): readonly string[] {
  return name.endsWith("_K") ? [`${name}_M`, `${name}_L`, `${name}_S`, name] : [name];
}

/** Returns the name of a number type in names of UQFF files: q4k for Q4_K, q8_0 for Q8_0. */
export function stemOfType(typeName: string): string {
  return typeName.toLowerCase().replace(/_k$/, "k");
}

function levelOf(name: LevelName, note: string | null): Level {
  return { name, type: tensorType(name), endsType: tensorType(oneUp[name]), note };
}

/** Returns the type for rows of `columns` values: `type`, or its replacement if the rows do not fit its blocks. */
export function fittingType(type: number, columns: number, blockLength: (type: number) => number): number {
  if (columns % blockLength(type) === 0) return type;
  const other = forOddRows.get(type);
  if (other !== undefined && columns % blockLength(other) === 0) return other;
  return tensorType("F16");
}
