// Inputs of embedding requests: texts or token lists, packed into a few buffers that can be transferred between threads.
import { z } from "zod";
import type { EmbedInputs } from "../../../actors/api/inference.ts";

/** Maximum number of inputs in one request. */
export const MAX_INPUTS = 2048;

/** Field for the length to which vectors are cut. Only models trained for it (matryoshka) keep their quality. */
export const dimensions = z
  .int32()
  .min(1)
  .nullish()
  .meta({
    description:
      "Number of leading elements of each vector to keep; the rest is cut off, and the vector scaled to length 1. Only models trained " +
      "for it (matryoshka) keep their quality.",
  });

/** Field for the kind of the texts (for example query or document). The text worker checks that the model supports it. */
export const inputType = z
  .string()
  .min(1)
  .max(64)
  .nullish()
  .meta({
    description:
      "Kind of the texts: selects the model's prompt that is put before each. A name of one of the model's prompts, such as `query`, " +
      "`document`, `classification` or `clustering` (`search_query`, `passage` and the like are aliases). By default the model's " +
      "default prompt, or none; for a ColBERT model `document`. `query` and `document` add nothing if the model has only the other " +
      "one, or no prompts. Unknown names are refused.",
  });

export function packedTexts(texts: readonly string[]): EmbedInputs {
  const lengths = texts.map((text) => Buffer.byteLength(text));
  const ends = endsOf(lengths);
  const values = new Uint8Array(ends.at(-1) ?? 0);
  const encoder = new TextEncoder();
  texts.forEach((text, i) => {
    encoder.encodeInto(text, values.subarray((ends[i] as number) - (lengths[i] as number)));
  });
  return { kind: "texts", values, ends };
}

export function packedTokens(lists: readonly (readonly number[])[]): EmbedInputs {
  const ends = endsOf(lists.map(({ length }) => length));
  const values = new Int32Array(ends.at(-1) ?? 0);
  lists.forEach((list, i) => {
    values.set(list, (ends[i] as number) - list.length);
  });
  return { kind: "tokens", values, ends };
}

function endsOf(lengths: readonly number[]): Uint32Array {
  let end = 0;
  return Uint32Array.from(lengths, (length) => {
    end += length;
    return end;
  });
}
