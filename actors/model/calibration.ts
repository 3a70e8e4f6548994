// Calibration in a model's worker: starts collecting the inputs of the weight matrices, and computes the status from the engine's sums.
import type { InputSums, LoadedModel } from "../../engines/engine.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { CalibrationStatus } from "../api/calibration.ts";

/**
 * Starts collecting. Returns null if the engine can collect only after a reload with spec.collectsInputs. Throws `unsupported` if
 * the engine cannot collect at all.
 */
export function startCalibration(model: LoadedModel): CalibrationStatus | null {
  const { calibration = null, card, capabilities } = model;
  if (calibration === null && card.backend === "cpu" && capabilities.generates) return null;
  if (calibration === null) {
    const what = capabilities.generates ? `on ${card.backend}` : "of an encoder";
    const message = `${card.engine} cannot collect the inputs of matrices ${what}; start the server with --engine wasm, or set imatrix or calibration_file`;
    throw new ServerError("unsupported", message);
  }
  calibration.start();
  return calibrationStatus(model);
}

export function calibrationStatus({ calibration }: LoadedModel): CalibrationStatus {
  const isCollecting = calibration?.isCollecting ?? false;
  const sums = calibration?.sums() ?? [];
  const rows = sums.flatMap((one) => [...one.rows]);
  return {
    isCollecting,
    layers: sums.length,
    layersTracking: sums.filter((one) => one.rows.some((count) => count > 0)).length,
    totalRows: rows.reduce((sum, count) => sum + count, 0),
    minRows: rows.reduce((least, count) => Math.min(least, count), rows[0] ?? 0),
    maxRows: rows.reduce((most, count) => Math.max(most, count), 0),
  };
}

export function calibrationSums({ calibration }: LoadedModel): readonly InputSums[] {
  return calibration?.sums() ?? [];
}
