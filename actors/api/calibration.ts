// Calibration: collects the inputs of a model's weight matrices while the model serves requests. An importance matrix is computed
// from them, and the model is requantized with it.

/** State of the calibration of one model. */
export interface CalibrationStatus {
  readonly isCollecting: boolean;
  /** Number of matrices whose inputs can be collected. */
  readonly layers: number;
  /** Number of matrices that have received input rows. */
  readonly layersTracking: number;
  /**
   * Number of input rows: of all matrices together, and of the matrices with the fewest and the most rows. Each expert counts as
   * a matrix.
   */
  readonly totalRows: number;
  readonly minRows: number;
  readonly maxRows: number;
}

/** Every `name` is a model id or "default". All methods throw model_not_found, and model_state_conflict if the model is not loaded. */
export interface CalibrationControl {
  /**
   * Starts collecting and discards what was collected before. Throws `unsupported` if the engine cannot collect, and
   * model_state_conflict if the model was not quantized at load time.
   */
  startCalibration(name: string): Promise<CalibrationStatus>;
  calibrationStatus(name: string): Promise<CalibrationStatus>;
  /**
   * Starts requantizing the model with the importance collected so far, like ModelManagement.requantize. `saveAs`: name of the
   * file to which the importance matrix is written; null = do not write it. Returns the calibration status before the
   * requantization. Throws the errors of requantize, and model_state_conflict if nothing has been collected.
   */
  applyCalibration(name: string, saveAs: string | null): Promise<CalibrationStatus>;
}
