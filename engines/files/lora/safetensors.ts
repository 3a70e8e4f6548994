// Safetensors file of an adapter: its tensors, and the location of their values.
import { quote } from "../gguf/invalid-file.ts";
import { type ReadableFile, readSafetensorsHead, type SafetensorsEntry, sizeProblem } from "../safetensors/head.ts";
import { invalidAdapter } from "./adapter-problems.ts";
import { type FloatSpan, type FloatType, floatBytes } from "./lora-pair.ts";
import type { SourceFile } from "./source-file.ts";

/**
 * Maximum length of the header: enough for about 40,000 tensors of an adapter, and far below the lengths that a damaged
 * file may claim.
 */
const maxHeaderBytes = 8 * 1024 * 1024;

/** Returns the tensors in file order. Throws `invalid_lora_adapter`. */
export function readSafetensors(file: ReadableFile): Promise<SafetensorsEntry[]> {
  return readSafetensorsHead(file, {
    maxBytes: maxHeaderBytes,
    damaged: (problem) => invalidAdapter(`its ${file.name} is damaged or cut off: ${problem}; copy it again`),
  });
}

/** Returns the location of a tensor's values. Throws `invalid_lora_adapter` if they are not floats. */
export function floatSpan(entry: SafetensorsEntry, file: SourceFile): FloatSpan {
  const { name, type, shape, offset } = entry;
  if (!isFloatType(type)) {
    throw invalidAdapter(`its tensor ${quote(name)} has type ${quote(type)}; expected F32, F16 or BF16`);
  }
  const problem = sizeProblem(entry);
  if (problem !== null) throw invalidAdapter(problem);
  const count = shape.reduce((product, length) => product * length, 1);
  return { file, name: quote(name), type, offset, count };
}

function isFloatType(type: string): type is FloatType {
  return Object.hasOwn(floatBytes, type);
}
