// Owns how an error looks in JSON-RPC, and the ones that are no answer to a message: the body could not be read, or is
// refused.
import { z } from "zod";
import type { ErrorCode } from "../../runtime/errors.ts";
import { commonErrors, type ErrorFormat } from "../errors.ts";

const PARSE_ERROR = -32700;
const INVALID_REQUEST = -32600;
const INTERNAL_ERROR = -32603;
/** What servers may use for errors of their own. */
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
      .meta({ description: "The request's; null where it could not be read" }),
    error: z.strictObject({
      code: z.int(),
      message: z.string(),
      data: z.unknown().optional().meta({ description: "What else there is to say of some errors" }),
    }),
  })
  .meta({ id: "JsonRpcError" });

export const rpcErrors: ErrorFormat = {
  // A message that is none is a bad request of the transport, not a field of a known request.
  statusOf: (code) => (code === "invalid_value" ? 400 : commonErrors.statusOf(code)),
  body: ({ code, message }) =>
    JSON.stringify({ jsonrpc: "2.0", id: null, error: { code: rpcCodes[code] ?? SERVER_ERROR, message } }),
  schema: rpcError,
};
