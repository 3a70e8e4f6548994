// POST /calibration/start, GET /calibration/status and POST /calibration/apply.
import type { z } from "zod";
import type { CalibrationStatus } from "../../actors/api/calibration.ts";
import type { RouteHandler } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { readJson } from "../json.ts";
import type { Log } from "../observe/log.ts";
import { readQuery } from "../shared/read-query.ts";
import {
  applyCalibrationSchema,
  calibrationQuery,
  type calibrationSchema,
  startCalibrationSchema,
} from "./operation.ts";

const DEFAULT_ID = "default";

export const startCalibration: RouteHandler = async (exchange, { models, log }) => {
  const { model } = readOptional(exchange, startCalibrationSchema, log);
  exchange.json(200, wireStatus(await models.startCalibration(model ?? DEFAULT_ID)));
};

export const calibrationStatus: RouteHandler = async (exchange, { models }) => {
  const { model = DEFAULT_ID } = readQuery(exchange.request.query, calibrationQuery);
  exchange.json(200, wireStatus(await models.calibrationStatus(model)));
};

export const applyCalibration: RouteHandler = async (exchange, { models, log }) => {
  const { model, save_cimatrix: saveAs } = readOptional(exchange, applyCalibrationSchema, log);
  exchange.json(200, wireStatus(await models.applyCalibration(model ?? DEFAULT_ID, saveAs ?? null)));
};

/** Reads a body in which every field is optional, and which may be empty. */
function readOptional<Schema extends z.ZodObject>({ request }: Exchange, schema: Schema, log: Log): z.output<Schema> {
  return request.body.byteLength === 0 ? schema.parse({}) : readJson(request, schema, log);
}

function wireStatus(status: CalibrationStatus): z.output<typeof calibrationSchema> {
  return {
    collecting: status.isCollecting,
    layers: status.layers,
    layers_tracking: status.layersTracking,
    total_rows: status.totalRows,
    min_rows: status.minRows,
    max_rows: status.maxRows,
  };
}
