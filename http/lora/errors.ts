// Error format of the LoRA routes: the common error body, except that `type` has only two values and some error codes have
// different names.
import { z } from "zod";
import { type ErrorCode, type ErrorRecord, errorCodes } from "../../runtime/errors.ts";
import { statusOf as commonStatusOf, type ErrorFormat } from "../errors.ts";

type OwnNames = Partial<Readonly<Record<ErrorCode, string>>>;
type OwnStatuses = Partial<Readonly<Record<ErrorCode, number>>>;

const ownNames = {
  invalid_json: "malformed_json",
  invalid_value: "invalid_request_body",
  body_too_large: "request_body_too_large",
  unsupported: "invalid_model_operation",
  internal: "internal_error",
} as const satisfies OwnNames;

const ownStatuses: OwnStatuses = { invalid_value: 422 };

const INVALID_QUERY = "invalid_query";

const namesOnTheWire = [...new Set([...errorCodes.map((code) => (ownNames as OwnNames)[code] ?? code), INVALID_QUERY])];

const schema = z
  .strictObject({
    error: z.strictObject({
      message: z.string().meta({ description: "What was expected, what was received, and what to do." }),
      type: z.enum(["invalid_request_error", "server_error"]),
      param: z.string().nullable().meta({ description: "The field or parameter at fault." }),
      code: z.enum(namesOnTheWire),
    }),
  })
  .meta({ id: "LoraError" });

function format(names: OwnNames, statuses: OwnStatuses): ErrorFormat {
  const statusOf = (code: ErrorCode): number => statuses[code] ?? commonStatusOf(code);
  const nameOf = (code: ErrorCode): string => names[code] ?? code;
  const body = ({ code, message, param }: ErrorRecord): string => {
    const type = statusOf(code) < 500 ? "invalid_request_error" : "server_error";
    return JSON.stringify({ error: { message, type, param: param ?? null, code: nameOf(code) } });
  };
  return { statusOf, nameOf, body, schema };
}

/** Error format of the routes that load and unload adapters. */
export const loraErrors = format(ownNames, ownStatuses);

/** Error format of the route that lists adapters. An invalid query is the error `invalid_query`. */
export const loraListErrors = format(
  { ...ownNames, invalid_value: INVALID_QUERY },
  { ...ownStatuses, invalid_value: 400 },
);
