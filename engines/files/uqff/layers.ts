// Layers of UQFF: the matrices of a model, each in one of seven formats. The names of a layer's tensors begin with its key: `KEY.weight`,
// `KEY.weight.format`, and others that depend on the format. Each layer becomes a row source.
import { ServerError } from "../../../runtime/errors.ts";
import { storedRows } from "../checkpoint/quantised/plain.ts";
import type { RowSource, StoredRows } from "../checkpoint/row-source.ts";
import { quote } from "../gguf/invalid-file.ts";
import { tensorTypes } from "../gguf/tensors.ts";
import { tensorByteLength } from "../gguf/writer.ts";
import type { ModelTensors, ShardTensor } from "../safetensors/shards.ts";

/** Formats. The index is the number in KEY.weight.format. */
const formats = ["gguf", "unquant", "hqq", "fp8", "afq", "f8q8", "mxfp4"] as const;

export type UqffFormat = (typeof formats)[number];

export interface UqffLayer {
  /** Name of the matrix without its suffix: model.layers.0.self_attn.q_proj. */
  readonly key: string;
  readonly format: UqffFormat;
  /** Name of the number type, such as Q4_K, AFQ4 or BF16. */
  readonly typeName: string;
  /** Dimensions of the matrix, or of a stack of matrices, columns last. */
  readonly shape: readonly number[];
  /** Tensors of the layer, by the part of their name after the key, such as weight or weight.format. */
  readonly parts: ReadonlyMap<string, ShardTensor>;
  /** Values of the layer's small tensors, by the part of their name after the key, such as weight.format. */
  readonly facts: ReadonlyMap<string, readonly number[]>;
  readonly rows: RowSource;
  /** GGUF type that has the precision of the layer. */
  readonly storedType: number;
}

/** A model's tensors, and the function `read`, which returns the bytes of a small tensor. */
export interface ReadLayer extends ModelTensors {
  readonly read: (tensor: ShardTensor) => Promise<Buffer>;
}

export const formatSuffix = ".weight.format";

/** GGUF types that both mistral.rs and the engines support, by the number in KEY.weight.dtype. */
export const blockTypes: ReadonlySet<number> = new Set([0, 1, 2, 3, 6, 7, 8, 10, 11, 12, 13, 14, 30]);
const bf16 = 30;
const mxfp4Type = 39;
const afqBits = [2, 3, 4, 6, 8];
const afqGroups = [32, 64, 128];
const wordBits = 32;
const block = { length: 32, f8q8Bytes: 33 } as const;
const floatTypes = ["F32", "F16", "BF16"];

/** Reads one layer. Throws `model_file_invalid`, which names the damaged tensor, or `unsupported` for an unknown format. */
export async function readLayer(key: string, context: ReadLayer): Promise<UqffLayer> {
  const parts = new LayerParts(key, context);
  const number = await parts.byte("format");
  const format = formats[number];
  if (format === undefined) {
    throw parts.unsupported(`has format ${number}; known are ${formats.map((name, i) => `${i} ${name}`).join(", ")}`);
  }
  const matrix = await readers[format](parts);
  const { shape, rows } = matrix;
  const columns = shape.at(-1) ?? 0;
  const count = shape.reduce((product, length) => product * length, 1);
  if (
    shape.length < 2 ||
    shape.length > 3 ||
    count === 0 ||
    columns * rows.rows !== count ||
    columns !== rows.columns
  ) {
    throw parts.invalid(
      "weight",
      `its dimensions are ${shape.join(" x ") || "none"}; expected those of a matrix, or of a stack`,
    );
  }
  return { key, format, parts: parts.found, facts: parts.facts, ...matrix };
}

type Matrix = Pick<UqffLayer, "typeName" | "shape" | "rows" | "storedType">;

/** Reader of one layer. It looks up the layer's tensors by name and collects those that were found. */
class LayerParts {
  readonly found = new Map<string, ShardTensor>();
  readonly facts = new Map<string, readonly number[]>();
  readonly #key: string;
  readonly #context: ReadLayer;

  constructor(key: string, context: ReadLayer) {
    this.#key = key;
    this.#context = context;
  }

  /** Returns a tensor of the layer; `suffix` is what follows `KEY.weight.`. */
  tensor(suffix: string | null): ShardTensor {
    const name = suffix === null ? "weight" : `weight.${suffix}`;
    const tensor = this.#context.tensors.get(`${this.#key}.${name}`);
    if (tensor === undefined) throw this.invalid(name, "it is missing");
    this.found.set(name, tensor);
    return tensor;
  }

  async byte(suffix: string): Promise<number> {
    const [value = 0] = await this.#numbers(suffix, "U8", [], 1);
    return value;
  }

  async word(suffix: string): Promise<number> {
    const [value = 0] = await this.#numbers(suffix, "U32", [], 4);
    return value;
  }

  /** Returns the dimensions of the matrix. */
  async shape(): Promise<readonly number[]> {
    return await this.#numbers("shape", "U32", null, 4);
  }

  /** Returns a tensor as rows. Throws if its type is not one of `types`. */
  rows(suffix: string | null, ...types: readonly string[]): StoredRows {
    const tensor = this.tensor(suffix);
    if (!types.includes(tensor.type)) {
      throw this.invalid(suffix ?? "weight", `it has the type ${quote(tensor.type)}; expected ${types.join(", ")}`);
    }
    return storedRows(tensor, this.#context);
  }

  /** Returns all values of a tensor as one row. Throws if its type is not one of `types`. */
  row(suffix: string | null, ...types: readonly string[]): StoredRows {
    const rows = this.rows(suffix, ...types);
    return { ...rows, rows: 1, columns: rows.rows * rows.columns };
  }

  invalid(part: string, problem: string): ServerError {
    const name = `${this.#key}.${part.startsWith("weight") ? part : `weight.${part}`}`;
    const file = this.#context.files[this.#context.tensors.get(name)?.file ?? 0];
    return new ServerError(
      "model_file_invalid",
      `${file} is damaged or incomplete: its tensor ${quote(name)} cannot be used: ${problem}; fetch the model again`,
    );
  }

  unsupported(problem: string): ServerError {
    const file = this.#context.files[this.found.get("weight.format")?.file ?? 0];
    const advice = "use another quantization of the model, its safetensors, or a GGUF file";
    return new ServerError("unsupported", `the layer ${quote(this.#key)} of ${file} ${problem}; ${advice}`, {
      param: "from_uqff",
    });
  }

  async #numbers(
    suffix: string,
    type: string,
    shape: readonly number[] | null,
    size: 1 | 4,
  ): Promise<readonly number[]> {
    const tensor = this.tensor(suffix);
    const isFitting = tensor.type === type && (shape === null ? tensor.shape.length === 1 : tensor.shape.length === 0);
    if (!isFitting) {
      const expected = shape === null ? `a list of ${type}` : `one ${type}`;
      throw this.invalid(
        suffix,
        `it is ${tensor.type} of ${tensor.shape.join(" x ") || "no dimension"}; expected ${expected}`,
      );
    }
    const bytes = await this.#context.read(tensor);
    const values = Array.from({ length: bytes.length / size }, (_, i) => bytes.readUIntLE(i * size, size));
    this.facts.set(`weight.${suffix}`, values);
    return values;
  }
}

const readers: Readonly<Record<UqffFormat, (parts: LayerParts) => Promise<Matrix>>> = {
  gguf: async (parts) => {
    const type = await parts.word("dtype");
    const shape = await parts.shape();
    const found = tensorTypes.get(type);
    if (found === undefined || !blockTypes.has(type)) {
      const known = [...blockTypes].map((one) => tensorTypes.get(one)?.name);
      throw parts.unsupported(`has the GGUF type ${found?.name ?? type}; expected one of ${known.join(", ")}`);
    }
    const { file, offset, columns: bytes } = parts.row(null, "U8");
    const columns = shape.at(-1) ?? 0;
    const expected = columns % found.blockLength === 0 ? tensorByteLength(type, shape.toReversed()) : -1;
    if (bytes !== expected)
      throw parts.invalid("weight", `it has ${bytes} bytes for ${shape.join(" x ")} numbers in ${found.name}`);
    const rows = shape.slice(0, -1).reduce((product, length) => product * length, 1);
    return {
      typeName: found.name,
      shape,
      storedType: type,
      rows: { kind: "blocks", file, offset, type, rows, columns },
    };
  },
  unquant: async (parts) => {
    const rows = parts.rows(null, ...floatTypes);
    const storedType = rows.type === "F32" ? 0 : rows.type === "F16" ? 1 : bf16;
    return { typeName: rows.type, shape: parts.tensor(null).shape, storedType, rows };
  },
  hqq: async (parts) => {
    const bits = await parts.byte("bits");
    const shape = await parts.shape();
    const axis = await parts.byte("axis");
    // Settings of the quantizer. The values can be decoded without them.
    await parts.word("group_size");
    await parts.word("optimization_steps");
    await parts.byte("round_zeros");
    await parts.byte("channel_wise");
    if (bits !== 4 && bits !== 8) throw parts.unsupported(`is HQQ of ${bits} bits; 4 and 8 are read`);
    if (axis !== 0)
      throw parts.unsupported(`is HQQ with groups along dimension ${axis}; those along dimension 0 are read`);
    const codes = parts.rows(null, "U8");
    const scales = parts.row("scales", ...floatTypes);
    const zeros = parts.row("zeros", ...floatTypes);
    const count = shape.reduce((product, length) => product * length, 1);
    if (codes.columns !== scales.columns || codes.columns !== zeros.columns) {
      throw parts.invalid(
        "scales",
        `there are ${scales.columns} scales and ${zeros.columns} zero points; expected ${codes.columns}`,
      );
    }
    if (codes.rows * codes.columns * (8 / bits) !== count) {
      throw parts.invalid(
        "weight",
        `it has ${codes.rows * codes.columns} bytes for ${shape.join(" x ")} numbers of ${bits} bits`,
      );
    }
    const columns = shape.at(-1) ?? 0;
    const inOneRow = { ...codes, rows: 1, columns: codes.rows * codes.columns };
    return {
      ...{ typeName: `HQQ${bits}`, shape, storedType: likeScales(scales) },
      rows: { kind: "interleaved", bits, codes: inOneRow, scales, zeros, rows: count / columns, columns },
    };
  },
  fp8: async (parts) => {
    await parts.word("dtype");
    for (const unused of ["dequant_x_scale", "quant_scale"]) parts.tensor(unused);
    const source = parts.rows(null, "F8_E4M3");
    const scales = parts.row("dequant_w_scale", ...floatTypes);
    if (scales.columns !== 1) throw parts.invalid("dequant_w_scale", `it has ${scales.columns} values; expected one`);
    const { shape } = parts.tensor(null);
    const { rows, columns } = source;
    return {
      ...{ typeName: "F8E4M3", shape, storedType: bf16 },
      rows: {
        kind: "blockScaled",
        source,
        scales,
        blockRows: rows,
        blockColumns: columns,
        matrixRows: rows,
        rows,
        columns,
      },
    };
  },
  afq: async (parts) => {
    const [bits, groupSize] = [await parts.byte("bits"), await parts.byte("group_size")];
    if (!afqBits.includes(bits)) throw parts.unsupported(`is AFQ of ${bits} bits; expected ${afqBits.join(", ")}`);
    if (!afqGroups.includes(groupSize))
      throw parts.unsupported(`is AFQ in groups of ${groupSize}; expected ${afqGroups.join(", ")}`);
    const words = parts.rows(null, "U32");
    const [scales, offsets] = [parts.rows("scales", ...floatTypes), parts.rows("biases", ...floatTypes)];
    const columns = scales.columns * groupSize;
    const isFitting = [scales, offsets].every((one) => one.rows === words.rows && one.columns === scales.columns);
    if (!isFitting || words.columns * wordBits !== columns * bits) {
      throw parts.invalid(
        "weight",
        `its ${words.rows} x ${words.columns} words do not fit ${scales.rows} x ${scales.columns} scales`,
      );
    }
    const shape = [...parts.tensor(null).shape.slice(0, -1), columns];
    return {
      ...{ typeName: `AFQ${bits}`, shape, storedType: likeScales(scales) },
      rows: { kind: "affine", bits, words, scales, offsets, groupSize, rows: words.rows, columns },
    };
  },
  f8q8: async (parts) => {
    const [blocks, shape] = [await parts.word("num_blocks"), await parts.shape()];
    const bytes = parts.row(null, "U8");
    const columns = shape.at(-1) ?? 0;
    const count = shape.reduce((product, length) => product * length, 1);
    const isFitting = columns % block.length === 0 && count / block.length === blocks;
    if (!isFitting || bytes.columns !== blocks * block.f8q8Bytes) {
      throw parts.invalid(
        "weight",
        `it has ${bytes.columns} bytes in ${blocks} blocks for ${shape.join(" x ")} numbers`,
      );
    }
    const rows = count / columns;
    const stored = { ...bytes, rows, columns: bytes.columns / rows };
    return { typeName: "F8Q8", shape, storedType: bf16, rows: { kind: "scaledBytes", blocks: stored, rows, columns } };
  },
  mxfp4: async (parts) => {
    const [codes, scales] = [parts.rows(null, "U8"), parts.rows("scales", "U8")];
    const columns = codes.columns * 2;
    if (scales.rows !== codes.rows || scales.columns * block.length !== columns) {
      throw parts.invalid("scales", `it is ${scales.rows} x ${scales.columns} for ${codes.rows} x ${columns} numbers`);
    }
    const shape = [...parts.tensor(null).shape.slice(0, -1), columns];
    return {
      typeName: "MXFP4",
      shape,
      storedType: mxfp4Type,
      rows: { kind: "mxfp4", codes, scales, rows: codes.rows, columns },
    };
  },
};

/** Returns the GGUF type of the scales, because a layer's values are not much more precise than its scales. */
function likeScales({ type }: StoredRows): number {
  return type === "F16" ? 1 : bf16;
}
