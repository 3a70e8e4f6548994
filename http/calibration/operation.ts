// OpenAPI description of the calibration routes, and their schemas.
import { z } from "zod";
import { jsonAnswer, type Operation } from "../operation.ts";

const MAX_MODEL_LENGTH = 4096;
const MAX_NAME_LENGTH = 200;
/** A file name without folders that does not begin with a dot. */
const FILE_NAME = /^[\w-][\w.-]*$/;

const count = z.int().min(0);
const modelName = z.string().max(MAX_MODEL_LENGTH);
const model = modelName
  .nullish()
  .meta({ description: 'Id of the model; "default" is the default model.', default: "default" });

export const startCalibrationSchema = z.strictObject({ model });

export const applyCalibrationSchema = z.strictObject({
  save_cimatrix: z
    .string()
    .max(MAX_NAME_LENGTH)
    .regex(FILE_NAME, { error: "expected a file name of letters, digits, dots, dashes and underscores" })
    .nullish()
    .meta({
      description:
        "Name of a file in the folder `calibration` of the cache, to which the importance matrix is written: as .cimatrix if the name ends so, else as GGUF; the setting `imatrix` takes it.",
    }),
  model,
});

export const calibrationQuery = z.strictObject({
  model: modelName
    .optional()
    .meta({ description: 'Id of the model; "default" is the default model.', default: "default" }),
});

export const calibrationSchema = z
  .strictObject({
    collecting: z.boolean().meta({ description: "Whether the inputs of the model's matrices are collected." }),
    layers: count.meta({ description: "Number of matrices whose inputs are collected; 0 before the start." }),
    layers_tracking: count.meta({ description: "Number of matrices that have had input rows." }),
    total_rows: count.meta({ description: "Input rows of all matrices together; a token is one row of each matrix." }),
    min_rows: count.meta({ description: "Input rows of the matrix with the fewest; each expert counts as a matrix." }),
    max_rows: count.meta({ description: "Input rows of the matrix with the most." }),
  })
  .meta({ id: "Calibration" });

/** Errors of all calibration routes. */
const common = [
  "model_not_found",
  "model_state_conflict",
  "model_loading",
  "mailbox_full",
  "timeout",
  "peer_gone",
] as const;
const answers = jsonAnswer(calibrationSchema, "The state of the calibration");

export const startCalibrationOperation: Operation = {
  id: "startCalibration",
  tag: "Operations",
  summary: "Collect the inputs of a model's matrices while it answers",
  description:
    "For a model that was quantized when it was loaded (`isq`, `POST /re_isq`), on the wasm engine. Drops what was collected before. " +
    "The body may be empty.",
  body: startCalibrationSchema,
  answers,
  errors: [...common, "unsupported"],
};

export const calibrationStatusOperation: Operation = {
  id: "showCalibration",
  tag: "Operations",
  summary: "Show what has been collected",
  query: calibrationQuery,
  answers,
  errors: common,
};

export const applyCalibrationOperation: Operation = {
  id: "applyCalibration",
  tag: "Operations",
  summary: "Quantize a model again with the importance collected",
  description:
    "Responds at once with the state before. In the background, the source of the model is converted at its level, with the importance " +
    "collected, and takes the place of the loaded model, as with `POST /re_isq`; collecting ends then. The body may be empty.",
  body: applyCalibrationSchema,
  answers,
  errors: [...common, "unsupported", "draining"],
};
