// Calibration of a served model, on the main thread: starts the collection in the model's place, and quantizes the model again
// with what was collected.
import { ServerError } from "../../../runtime/errors.ts";
import type { CalibrationStatus } from "../../api/calibration.ts";
import type { ManagedModel } from "../managed-model.ts";
import type { Requantizer } from "./requantizer.ts";

/** Maximum time for the model's place to send the sums, which may take megabytes. */
const sumsTimeoutMs = 60_000;

/** Starts the collection. llama.cpp must be told before a load, so the model is loaded again, between requests. */
export async function startCalibration(model: ManagedModel, requantizer: Requantizer): Promise<CalibrationStatus> {
  const level = levelOf(model);
  const start = () => model.whileLoaded((place) => place.ask("startCalibration", null));
  const started = await start();
  if (started !== null) return started;
  await requantizer.reload(model, { spec: { ...model.served.spec, collectsInputs: true }, level });
  const restarted = await start();
  if (restarted !== null) return restarted;
  throw new ServerError("internal", `model "${model.id}" was loaded to collect its inputs, but does not`);
}

export async function calibrationStatus(model: ManagedModel): Promise<CalibrationStatus> {
  return await model.whileLoaded((place) => place.ask("calibrationStatus", null));
}

/** Begins to quantize the model with what was collected. Returns the state before. */
export async function applyCalibration(
  model: ManagedModel,
  requantizer: Requantizer,
  saveAs: string | null,
): Promise<CalibrationStatus> {
  const level = levelOf(model);
  const status = await calibrationStatus(model);
  if (status.totalRows === 0) {
    const message = status.isCollecting
      ? `model "${model.id}" has computed no token since the calibration was started; send requests first`
      : `no calibration of model "${model.id}" is in progress; POST /calibration/start first`;
    throw new ServerError("model_state_conflict", message);
  }
  const sums = await model.whileLoaded((place) => place.ask("calibrationSums", null, { timeoutMs: sumsTimeoutMs }));
  requantizer.begin(model, level, { sums, saveAs });
  return status;
}

/** Returns the level at which the model was quantized when it was loaded. Throws model_state_conflict if it was not. */
function levelOf({ id, served: { level = null } }: ManagedModel): string {
  if (level !== null) return level;
  const message = `model "${id}" was not quantized when it was loaded; set isq, or send POST /re_isq first`;
  throw new ServerError("model_state_conflict", message);
}
