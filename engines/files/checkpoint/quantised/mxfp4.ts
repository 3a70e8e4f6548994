// MXFP4 of gpt-oss: blocks of 32 numbers, with codes and scales in separate tensors. They stay MXFP4 in the GGUF file.
import type { Method } from "./method.ts";

const mxfp4Type = 39;
const blockLength = 32;

export const mxfp4: Method = async (tensors) => {
  return tensors.stems("_blocks").map((name) => {
    const { shape } = tensors.peek(`${name}_blocks`) ?? { shape: [] };
    const [experts = 0, matrixRows = 0, blocks = 0] = shape;
    const codes = tensors.takeRows(`${name}_blocks`, [experts, matrixRows, blocks, blockLength / 2]);
    const scales = tensors.takeRows(`${name}_scales`, [experts, matrixRows, blocks]);
    const [rows, columns] = [experts * matrixRows, blocks * blockLength];
    return {
      name,
      rows: {
        kind: "mxfp4" as const,
        codes: { ...codes, rows, columns: columns / 2 },
        scales,
        ...{ rows, columns },
      },
      shape: [columns, matrixRows, experts],
      storedType: mxfp4Type,
    };
  });
};
