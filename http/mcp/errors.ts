// JSON-RPC errors without a message id: the format for bodies that could not be read or are rejected.
import { z } from "zod";
import type { ErrorCode } from "../../runtime/errors.ts";
import { commonErrors, type ErrorFormat } from "../errors.ts";

const PARSE_ERROR = -32700;
const INVALID_REQUEST = -32600;
const INTERNAL_ERROR = -32603;
/** First error code of the range that JSON-RPC reserves for servers. */
const SERVER_ERROR = -32000;
const SESSION_NOT_FOUND = -32001;

const rpcCodes: Partial<Record<ErrorCode, number>> = {
  invalid_json: PARSE_ERROR,
  invalid_value: INVALID_REQUEST,
  not_found: SESSION_NOT_FOUND,
  internal: INTERNAL_ERROR,
};

export const rpcError = z
  .strictObject({
    jsonrpc: z.literal("2.0"),
    id: z
      .union([z.string(), z.int(), z.null()])
      .meta({ description: "Id of the request; null if it could not be read" }),
    error: z.strictObject({
      code: z.int(),
      message: z.string(),
      data: z.unknown().optional().meta({ description: "Details of some errors" }),
    }),
  })
  .meta({ id: "JsonRpcError" });

export const rpcErrors: ErrorFormat = {
  statusOf: commonErrors.statusOf,
  body: ({ code, message }) =>
    JSON.stringify({ jsonrpc: "2.0", id: null, error: { code: rpcCodes[code] ?? SERVER_ERROR, message } }),
  schema: rpcError,
};
