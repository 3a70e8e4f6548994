// Load options of a model: the settings that concern its weights. Reads and checks the files that these settings name.
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { type MatformerSlice, readSlice, readSlices } from "../../../engines/files/checkpoint/matformer/slice-file.ts";
import type { ModelOptions, SourceOptions } from "../../../engines/quantization/conversion/plan-model.ts";
import { readImportance } from "../../../engines/quantization/importance/importance-file.ts";
import { parseLevel } from "../../../engines/quantization/plan/levels.ts";
import type { LayerRule } from "../../../engines/quantization/plan/topology.ts";
import { dtypes } from "../../../engines/quantization/plan/types.ts";
import { ServerError } from "../../../runtime/errors.ts";
import type { ModelConfig } from "../../config/config.ts";

/**
 * Returns the load options. Reads the files that the settings name. Throws config_invalid. `warn` is called if something is
 * done differently than the settings say.
 */
export async function modelOptionsOf(model: ModelConfig, warn: (message: string) => void): Promise<ModelOptions> {
  const { isq, isqOrganization, quant, imatrix, calibrationFile } = model.quantization;
  const { topology } = model.device;
  const level = isq === null ? null : parseLevel(isq, "isq");
  if (level?.note) warn(level.note);
  const rules = topology === null ? [] : await readTopology(topology);
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
    ...(await sourceOptionsOf(model, warn)),
  };
}

/** Returns the options for reading the files of a model. Throws and warns like modelOptionsOf(). */
export async function sourceOptionsOf(model: ModelConfig, warn: (message: string) => void): Promise<SourceOptions> {
  return {
    overrides: model.hfOverrides ?? {},
    tokenizer: tokenizerOf(model),
    slice: await sliceOf(model, warn),
    architecture: model.arch,
    queryHeads: model.format.gqa,
  };
}

/** Returns the path of the tokenizer that replaces the model's own; null if the model's own is used. */
export function tokenizerOf({ tokenizer, format }: ModelConfig): string | null {
  const path = tokenizer ?? format.tokModelId;
  return path === null ? null : resolve(path);
}

async function sliceOf(
  { matformerConfigPath: path, matformerSliceName: name }: ModelConfig,
  warn: (message: string) => void,
): Promise<MatformerSlice | null> {
  if (path === null) return null;
  if (name !== null) return await readSlice(resolve(path), name);
  const known = (await readSlices(resolve(path))).map((slice) => `"${slice.name}"`).join(", ");
  warn(`the whole model is loaded, because matformer_slice_name is not set; matformer_config_path has ${known}`);
  return null;
}

/**
 * Returns whether the options require a change of a GGUF file. Options that a GGUF file does not allow are rejected later, by
 * planModel().
 */
export function changesFile(options: ModelOptions): boolean {
  const { level, topology, floatType, tokenizer, overrides, slice, architecture, queryHeads } = options;
  return (
    level !== null ||
    topology.length > 0 ||
    floatType !== null ||
    tokenizer !== null ||
    slice !== null ||
    architecture !== null ||
    queryHeads !== 1 ||
    Object.keys(overrides).length > 0
  );
}

/** Imports the parser here, because its YAML library takes 35 ms to load. */
async function readTopology(path: string): Promise<LayerRule[]> {
  const { parseTopology } = await import("../../../engines/quantization/plan/topology.ts");
  return parseTopology(await readText(path, "topology"), path);
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
