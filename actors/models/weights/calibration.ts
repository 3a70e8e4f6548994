// Calibration of a served model, on the main thread: starts the collection in the model's worker, and requantizes the model with
// the collected data.
import { ServerError } from "../../../runtime/errors.ts";
import type { CalibrationStatus } from "../../api/calibration.ts";
import type { ManagedModel } from "../managed-model.ts";
import type { Requantizer } from "./requantizer.ts";

/** Maximum time in ms for the model's worker to send the sums, which may be megabytes. */
const sumsTimeoutMs = 60_000;

/** Starts collecting. llama.cpp must be configured for it at load time, so the model may have to be reloaded between requests. */
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

/** Starts requantizing the model with the collected data. Returns the calibration status before the requantization. */
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

/** Returns the level to which the model was quantized at load time. Throws model_state_conflict if it was not quantized. */
function levelOf({ id, served: { level = null } }: ManagedModel): string {
  if (level !== null) return level;
  const message = `model "${id}" was not quantized when it was loaded; set isq, or send POST /re_isq first`;
  throw new ServerError("model_state_conflict", message);
}
