// Packed integers: GPTQ, AWQ, and the format pack-quantized of compressed-tensors.
import type { Config } from "../config.ts";
import type { PackedIntRows, StoredRows } from "../row-source.ts";
import { type Method, type OpenTensors, typeLike } from "./method.ts";

const wordBits = 32;
const possibleBits = [2, 4, 8];

export const gptq: Method = async (tensors, settings) => {
  const bits = readBits(settings, "bits", "w_bit");
  const perWord = wordBits / bits;
  return tensors.stems(".qweight").map((stem) => {
    const words = tensors.takeRows(`${stem}.qweight`, [null, null]);
    const [rows, columns] = [words.columns, words.rows * perWord];
    const scales = tensors.takeRows(`${stem}.scales`, [null, rows]);
    const zeros = tensors.takeRows(`${stem}.qzeros`, [scales.rows, Math.ceil(rows / perWord)]);
    const groups = tensors.peek(`${stem}.g_idx`) ? tensors.takeRows(`${stem}.g_idx`, [columns]) : null;
    const packed: PackedIntRows = {
      kind: "packedInts",
      layout: "gptq",
      ...{ bits, words, scales, zeros, groups, rows, columns },
      // The first version of GPTQ's format (`gptq`) stores each zero point minus 1, so 1 is added.
      zero: (settings.text("checkpoint_format") ?? "gptq") === "gptq" ? 1 : 0,
      groupSize: groupSize(tensors, `${stem}.scales`, columns, scales.rows),
    };
    return matrix(stem, packed, scales);
  });
};

export const awq: Method = async (tensors, settings) => {
  const bits = readBits(settings, "bits", "w_bit");
  if (bits !== 4) throw settings.unsupported("quantization_config.bits", bits, "4 bits of AWQ");
  settings.mustBe("version", "gemm");
  return tensors.stems(".qweight").map((stem) => {
    const words = tensors.takeRows(`${stem}.qweight`, [null, null]);
    const [rows, columns] = [words.columns * (wordBits / bits), words.rows];
    const scales = tensors.takeRows(`${stem}.scales`, [null, rows]);
    const zeros = tensors.takeRows(`${stem}.qzeros`, [scales.rows, words.columns]);
    const size = groupSize(tensors, `${stem}.scales`, columns, scales.rows);
    const packed: PackedIntRows = {
      kind: "packedInts",
      layout: "awq",
      ...{ bits, words, scales, zeros, rows, columns, groups: null, zero: 0, groupSize: size },
    };
    return matrix(stem, packed, scales);
  });
};

/** The format pack-quantized of compressed-tensors. */
export const packedRows: Method = async (tensors, settings) => {
  const bits = readBits(settings, "num_bits");
  const perWord = wordBits / bits;
  return tensors.stems(".weight_packed").map((stem) => {
    const words = tensors.takeRows(`${stem}.weight_packed`, [null, null]);
    const { rows } = words;
    const scales = tensors.takeRows(`${stem}.weight_scale`, [rows, null]);
    // weight_shape is removed without use: its number of columns matters only if the last 32-bit word of a row is not full.
    tensors.takeIfThere(`${stem}.weight_shape`);
    if (tensors.peek(`${stem}.weight_g_idx`)) throw settings.unsupported("actorder", "group", "weight or none");
    const columns = words.columns * perWord;
    const zeros = tensors.peek(`${stem}.weight_zero_point`)
      ? tensors.takeRows(`${stem}.weight_zero_point`, [Math.ceil(rows / perWord), scales.columns])
      : null;
    const packed: PackedIntRows = {
      kind: "packedInts",
      layout: "rows",
      ...{ bits, words, scales, zeros, rows, columns, groups: null },
      zero: zeros === null ? 2 ** (bits - 1) : 0,
      groupSize: groupSize(tensors, `${stem}.weight_scale`, columns, scales.columns),
    };
    return matrix(stem, packed, scales);
  });
};

function matrix(stem: string, rows: PackedIntRows, scales: StoredRows) {
  return { name: `${stem}.weight`, rows, shape: [rows.columns, rows.rows], storedType: typeLike(scales) };
}

function readBits(settings: Config, ...names: readonly string[]): number {
  const bits = settings.count(...names);
  if (possibleBits.includes(bits)) return bits;
  throw settings.unsupported(`quantization_config.${names[0]}`, bits, possibleBits.join(", "));
}

function groupSize(tensors: OpenTensors, name: string, columns: number, groups: number): number {
  if (groups > 0 && columns % groups === 0) return columns / groups;
  throw tensors.invalid(name, `it has ${groups} groups for ${columns} columns`);
}
