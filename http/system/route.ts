// GET /v1/system/info and /v1/system/config, and POST /v1/system/doctor. The SystemInspector supplies the information.
import type { RouteHandler } from "../context.ts";
import { wireDiagnosis, wireSystemInfo } from "./schemas.ts";

export const systemInfo: RouteHandler = async (exchange, { system }) => {
  exchange.json(200, wireSystemInfo(await system.info()));
};

export const systemDoctor: RouteHandler = async (exchange, { system }) => {
  exchange.json(200, wireDiagnosis(await system.diagnose()));
};

export const systemConfig: RouteHandler = (exchange, { settings }) => {
  exchange.json(200, { object: "list", data: settings });
};
