// Wishes for the weights of a model: settings and the files that they name, read and checked.
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import type { ModelWishes } from "../../../engines/quantization/conversion/plan-model.ts";
import { readImportance } from "../../../engines/quantization/importance/importance-file.ts";
import { parseLevel } from "../../../engines/quantization/plan/levels.ts";
import { parseTopology } from "../../../engines/quantization/plan/topology.ts";
import { dtypes } from "../../../engines/quantization/plan/types.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { ModelConfig } from "../../config/config.ts";

/** Reads the files that the settings name. Throws config_invalid. `warn` is told what is done differently from what was asked. */
export async function wishesOf(model: ModelConfig, warn: (message: string) => void): Promise<ModelWishes> {
  const { isq, isqOrganization, quant, imatrix, calibrationFile } = model.quantization;
  const { topology } = model.device;
  const tokenizer = model.tokenizer ?? model.format.tokModelId;
  const level = isq === null ? null : parseLevel(isq, "isq");
  if (level?.note) warn(level.note);
  const rules = topology === null ? [] : parseTopology(await readText(topology, "topology"), topology);
  const weights = imatrix !== null ? "imatrix" : calibrationFile === null ? null : "calibration_file";
  if (level === null && rules.length === 0 && quant === null && weights !== null) {
    const message = `${weights} expects isq, quant or a topology, whose errors it weighs; set one of them`;
    throw new ServerError("config_invalid", message, { param: weights });
  }
  return {
    level,
    organization: isqOrganization,
    topology: rules,
    floatType: dtypes[model.dtype],
    importance: imatrix === null ? null : await readImportance(resolve(imatrix)),
    overrides: model.hfOverrides ?? {},
    tokenizer: tokenizer === null ? null : resolve(tokenizer),
  };
}

/** Whether the wishes ask for more than a GGUF file as it is. Some are refused for such a file when it is planned. */
export function changesFile({ level, topology, floatType, tokenizer, overrides = {} }: ModelWishes): boolean {
  return (
    level !== null ||
    topology.length > 0 ||
    floatType !== null ||
    tokenizer !== null ||
    Object.keys(overrides).length > 0
  );
}

async function readText(path: string, setting: string): Promise<string> {
  try {
    return await readFile(resolve(path), "utf8");
  } catch (cause) {
    const { code } = cause as NodeJS.ErrnoException;
    throw new ServerError("config_invalid", `${setting} names the file "${path}", which cannot be read (${code})`, {
      param: setting,
      cause,
    });
  }
}
