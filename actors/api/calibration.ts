// Calibration: the inputs of a model's matrices are collected while it answers requests. An importance matrix is made from them,
// with which the model is quantized again.

/** State of the collection on one model. */
export interface CalibrationStatus {
  readonly isCollecting: boolean;
  /** Number of matrices whose inputs can be collected. */
  readonly layers: number;
  /** Number of matrices that have had input rows. */
  readonly layersTracking: number;
  /** Input rows of all matrices together, and of the matrices with the fewest and the most. An expert counts as a matrix. */
  readonly totalRows: number;
  readonly minRows: number;
  readonly maxRows: number;
}

/** Every `name` is a model id or "default". All methods throw model_not_found, and model_state_conflict if it is not loaded. */
export interface CalibrationControl {
  /**
   * Begins to collect; what was collected before is dropped. Throws `unsupported` if the engine cannot collect, and
   * model_state_conflict if the model was not quantized when it was loaded.
   */
  startCalibration(name: string): Promise<CalibrationStatus>;
  calibrationStatus(name: string): Promise<CalibrationStatus>;
  /**
   * Begins to quantize the model again with the importance collected so far, as ModelManagement.requantize does. `saveAs`: name of
   * the file to which the importance matrix is written; null: none. Returns the state before. Throws the errors of
   * requantize, and model_state_conflict if nothing has been collected.
   */
  applyCalibration(name: string, saveAs: string | null): Promise<CalibrationStatus>;
}
