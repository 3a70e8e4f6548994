// Requantization: converts the source of a served model to another quantization level. It uses only part of the cores, because
// the model continues to serve requests. The result stays in the cache, as after a conversion at start.
import { join } from "node:path";
import type { Collected, RequantizeRequest, ServiceOptions } from "../../../actors/front/service-options.ts";
import { chunkTokens } from "../../../engines/calibration/collect-from-text.ts";
import type { ModelSpec } from "../../../engines/engine.ts";
import { readTensorTable } from "../../../engines/files/gguf/tensors.ts";
import { isCimatrix } from "../../../engines/quantization/importance/cimatrix.ts";
import type { Importance } from "../../../engines/quantization/importance/importance-file.ts";
import {
  importanceOf,
  writeCimatrix,
  writeImportance,
} from "../../../engines/quantization/importance/importance-writer.ts";
import { wasmRefusal } from "../../../engines/wasm/load/fit.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { computeThreads } from "../../../runtime/host/cores.ts";
import type { Logger } from "../../../runtime/log/log.ts";
import type { ModelConfig } from "../../config/config.ts";
import { prepareModel } from "./prepare-model.ts";
import { calibrationFolder } from "./text-importance.ts";

/** A model that can be converted. */
export interface ConvertibleModel {
  readonly model: ModelConfig;
  readonly engine: "llama" | "wasm";
  /** Path of the GGUF file, or of the config.json of a checkpoint, from which the model is converted. */
  readonly source: string;
}

/** Fraction of the compute threads that a conversion uses while the model serves requests. */
const threadShare = 0.5;

/** Returns a function that converts one of the models, by id. `threads`: value of the setting `threads`. */
export function requantizer(
  models: ReadonlyMap<string, ConvertibleModel>,
  threads: number,
  log: Logger,
): NonNullable<ServiceOptions["requantize"]> {
  return async ({ id, spec, level, collected, signal, onProgress }: RequantizeRequest): Promise<ModelSpec> => {
    const convertible = models.get(id);
    if (convertible === undefined) throw new ServerError("internal", `expected the id of a served model; got "${id}"`);
    const { model, engine, source } = convertible;
    const path = await prepareModel(source, {
      model: { ...model, quantization: { ...model.quantization, quant: null, isq: level } },
      threads: Math.max(1, Math.floor(computeThreads(threads) * threadShare)),
      log,
      progress: { update: (_label, done, total) => onProgress(done / (total ?? done)), stop: () => {}, signal },
      importance: collected === null ? null : await importanceFrom(collected, spec.path, log),
    });
    const next = { ...spec, path };
    const refusal = engine === "wasm" ? await wasmRefusal(next) : null;
    if (refusal !== null)
      throw new ServerError("unsupported", `the wasm engine cannot run "${id}" as ${level}: ${refusal}`);
    return next;
  };
}

/**
 * Computes the importance of the weight columns from the data collected while the model at path `model` served requests. Also
 * writes it to a file if `saveAs` is set.
 */
async function importanceFrom({ sums, saveAs }: Collected, model: string, log: Logger): Promise<Importance> {
  if (saveAs !== null) {
    const path = join(calibrationFolder(), saveAs);
    if (isCimatrix(path)) {
      const { fields } = await readTensorTable(model);
      await writeCimatrix(path, sums, String(fields.get("general.architecture")));
      log.info({ path }, "the importance matrix is written; the setting imatrix takes it");
      return importanceOf(sums);
    }
    const rows = sums.reduce((most, one) => Math.max(most, ...one.rows), 0);
    await writeImportance(path, sums, { dataset: "requests", chunkTokens, chunks: Math.ceil(rows / chunkTokens) });
    log.info({ path }, "the importance matrix is written; the setting imatrix takes it");
  }
  return importanceOf(sums);
}
