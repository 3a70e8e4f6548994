// Projector plan: the conversion that writes the vision part of a checkpoint as the GGUF file (mmproj) that the image encoder reads.

import { openVisionPart } from "../../files/checkpoint/vision/vision-part.ts";
import type { TypedValue } from "../../files/gguf/typed-value.ts";
import { planTypes, type TypeOptions } from "../plan/types.ts";
import { type Conversion, planConversion } from "./conversion.ts";
import { checkpointName, type SourceOptions } from "./plan-model.ts";

export type ProjectorOptions = Pick<TypeOptions, "floatType"> & Pick<SourceOptions, "overrides" | "tokenizer">;

/**
 * Plans the projector file of the checkpoint in a folder. Vectors become F32; matrices are not quantized. Reads no weights. Throws
 * `model_file_invalid`, and `unsupported` for a class whose vision part cannot be read.
 */
export async function planProjector(
  folder: string,
  { overrides, tokenizer, floatType }: ProjectorOptions,
): Promise<Conversion> {
  const { files, pairs, tensors } = await openVisionPart(folder, overrides, tokenizer ?? folder);
  const all = new Map<string, TypedValue>([
    ["general.architecture", { type: "string", value: "clip" }],
    ["general.name", { type: "string", value: checkpointName(folder) }],
    ...pairs,
  ]);
  const sources = tensors.map(({ name, shape, storedType, isMatrix, rows }) => {
    return { name, shape, type: storedType, isMatrix, values: rows };
  });
  const types = planTypes(sources, { level: null, organization: "default", topology: [], floatType });
  const source = { files, pairs: all, tensors: sources };
  return await planConversion({ source, types, importance: new Map(), fileType: null });
}
