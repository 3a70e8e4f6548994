// Model management for an app that cannot load or unload models: rejects every change.
import type { Inference } from "../../actors/api/inference.ts";
import type { ModelManagement, ModelOutcome } from "../../actors/api/model-management.ts";
import { ServerError } from "../../runtime/errors.ts";

export function unmanaged(inference: Inference): ModelManagement {
  const statusOf = (name: string): ModelOutcome => {
    const { id, adapter } = inference.resolveModel(name);
    const model = inference.models().find((known) => known.id === id);
    if (model !== undefined && adapter === null) return { id, status: model.status, error: null };
    throw new ServerError("model_not_found", `${JSON.stringify(name)} is not a base model`, { param: "model_id" });
  };
  const refuse = (name: string): never => {
    const { id } = statusOf(name);
    throw new ServerError(
      "unsupported",
      `requests cannot load, unload or convert the models of this server; "${id}" is unchanged`,
    );
  };
  const refuseLater = async (name: string): Promise<ModelOutcome> => refuse(name);
  const calibrate = async (name: string) => refuse(name);
  return {
    statusOf,
    waiting: async () => 0,
    reload: refuseLater,
    unload: refuseLater,
    requantize: refuse,
    startCalibration: calibrate,
    calibrationStatus: calibrate,
    applyCalibration: calibrate,
  };
}
