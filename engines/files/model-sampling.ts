// Model sampling: the sampling settings of a model, from the header of its GGUF file (keys `general.sampling.*`) or from
// a generation_config.json in the same folder. The keys of the GGUF file take precedence.
import { open } from "node:fs/promises";
import { dirname, join } from "node:path";
import { z } from "zod";
import type { DefaultedField } from "../generation.ts";
import type { OwnSetting } from "../sampling-defaults.ts";
import { readHead } from "./gguf/reader.ts";

/** Sampling settings of a model. The `origin` of a value is its key in the model file, or another file and the key in it. */
export type ModelSampling = Readonly<Partial<Record<DefaultedField, OwnSetting>>>;

export const generationConfigFile = "generation_config.json";
const prefix = "general.sampling.";
const maxConfigBytes = 2 ** 20;

interface OwnField {
  readonly field: DefaultedField;
  /** Key in the GGUF file, without the prefix `general.sampling.`. */
  readonly fileKey: string;
  readonly configKey: string;
  readonly type: z.ZodType<number>;
}

// Values -1 and 0 of top_k both mean all tokens.
const topK = z
  .int()
  .min(-1)
  .transform((count) => Math.max(count, 0));

const ownFields: readonly OwnField[] = [
  { field: "temperature", fileKey: "temp", configKey: "temperature", type: z.number().min(0).max(2) },
  { field: "topK", fileKey: "top_k", configKey: "top_k", type: topK },
  { field: "topP", fileKey: "top_p", configKey: "top_p", type: z.number().gt(0).max(1) },
  { field: "minP", fileKey: "min_p", configKey: "min_p", type: z.number().min(0).max(1) },
  {
    field: "repetitionPenalty",
    fileKey: "penalty_repeat",
    configKey: "repetition_penalty",
    type: z.number().gt(0).max(100),
  },
];

/** Reads the settings of the model at `path`. A value that cannot be used is left out, with a notice. */
export async function readModelSampling(path: string, onNotice: (message: string) => void): Promise<ModelSampling> {
  const { pairs } = await readHead(path, (key) => key.startsWith(prefix));
  const config = await readConfig(join(dirname(path), generationConfigFile), onNotice);
  const found: Partial<Record<DefaultedField, OwnSetting>> = {};
  const take = (own: OwnField, given: unknown, origin: string) => {
    const checked = own.type.safeParse(given);
    if (checked.success) found[own.field] = { value: rounded(checked.data), origin };
    else onNotice(`${origin} of the model is not used: its value ${JSON.stringify(given)} is out of range`);
  };
  for (const own of ownFields) {
    const key = prefix + own.fileKey;
    const inConfig = config[own.configKey] ?? null;
    if (pairs.has(key)) take(own, pairs.get(key), key);
    else if (inConfig !== null) take(own, inConfig, `${generationConfigFile} ${own.configKey}`);
  }
  for (const key of pairs.keys()) {
    if (!ownFields.some(({ fileKey }) => key === prefix + fileKey)) onNotice(`${key} of the model is not supported`);
  }
  return found;
}

/** Rounds to 6 significant digits, because values in GGUF files have 32 bits: 0.699999988079071 becomes 0.7. */
function rounded(value: number): number {
  return Number(value.toPrecision(6));
}

/** Returns the content of a generation_config.json; an empty object if there is none. */
async function readConfig(path: string, onNotice: (message: string) => void): Promise<Record<string, unknown>> {
  try {
    const file = await open(path);
    try {
      if ((await file.stat()).size > maxConfigBytes) throw new Error(`it is larger than ${maxConfigBytes} bytes`);
      return z.record(z.string(), z.unknown()).parse(JSON.parse(await file.readFile("utf8")));
    } finally {
      await file.close();
    }
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT")
      onNotice(`"${path}" is not used: ${(error as Error).message}`);
    return {};
  }
}
