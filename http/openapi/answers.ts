// Error responses and response headers in the API document: the error codes of each operation, grouped by status. The codes
// come from the operations; statuses and bodies come from the route's error format.
import { z } from "zod";
import type { oas31, ZodOpenApiResponseObject, ZodOpenApiResponsesObject } from "zod-openapi";
import { DefaultMap } from "../../runtime/collections.ts";
import { type ErrorCode, errorMeaning } from "../../runtime/errors.ts";
import { commonErrors, type ErrorFormat, requestIdHeaders, saysWhenToRetry } from "../errors.ts";
import type { DescribedRoute } from "../route.ts";
import { UNKNOWN_FIELDS_HEADER } from "../shared/unknown-fields.ts";

const ofEveryRoute: readonly ErrorCode[] = ["internal"];
const ofBodies: readonly ErrorCode[] = [
  "invalid_json",
  "invalid_content_type",
  "invalid_value",
  "body_too_large",
  "queue_full",
];
const ofQueries: readonly ErrorCode[] = ["invalid_value"];
const ofInference: readonly ErrorCode[] = ["draining"];
/** Errors that any request may cause; listed under `default` in every operation. */
const ofOtherRequests: readonly ErrorCode[] = [
  "method_not_allowed",
  "body_too_large",
  "queue_full",
  "invalid_request",
  "headers_too_large",
  "request_timeout",
  "forbidden",
  "invalid_api_key",
  "storage_unavailable",
];

export const headerComponents: Record<string, oas31.HeaderObject> = {
  RequestId: {
    description: "The request's own x-request-id if it is safe to echo, else a new id; absent if disabled.",
    schema: { type: "string" },
  },
  IgnoredFields: {
    description: "Fields of the request that the server does not know and has ignored; absent if there are none.",
    schema: { type: "string" },
  },
  RetryAfter: { description: "Seconds to wait before a retry.", schema: { type: "integer", minimum: 0 } },
};

const ignoredFieldsHeader = [UNKNOWN_FIELDS_HEADER, { $ref: "#/components/headers/IgnoredFields" }] as const;
const requestIdHeader = { $ref: "#/components/headers/RequestId" };
/** Retry-After header, for responses that tell the client to retry later. */
export const retryAfterHeader = { "retry-after": { $ref: "#/components/headers/RetryAfter" } };

/** Returns the headers that every response of a route has. */
export function commonHeaders({ errors = commonErrors, kind }: DescribedRoute) {
  const ids = requestIdHeaders(errors).map((name) => [name, requestIdHeader] as const);
  return Object.fromEntries([...ids, ...(kind === "inference" ? [ignoredFieldsHeader] : [])]);
}

/** Returns the error codes of an operation, without duplicates. */
export function codesOf({ operation, kind }: DescribedRoute): readonly ErrorCode[] {
  return [
    ...new Set([
      ...(operation.body === undefined ? [] : ofBodies),
      ...(operation.query === undefined ? [] : ofQueries),
      ...operation.errors,
      ...(kind === "inference" ? ofInference : []),
      ...ofEveryRoute,
    ]),
  ];
}

/**
 * Returns the error responses of an operation, by status; `default` contains the errors that any request may cause. `needsKey`:
 * whether requests need an API key.
 */
export function errorAnswers(route: DescribedRoute, needsKey: boolean): ZodOpenApiResponsesObject {
  const format = formatOf(route);
  const headers = commonHeaders(route);
  const byStatus = new DefaultMap<number, ErrorCode[]>(() => []);
  const codes: readonly ErrorCode[] = [...codesOf(route), ...(needsKey ? ["invalid_api_key" as const] : [])];
  for (const code of codes) byStatus.get(format.statusOf(code)).push(code);
  const answers = [...byStatus].map(([status, codes]) => [String(status), errorAnswer(codes, format, headers)]);
  return { ...Object.fromEntries(answers), default: errorAnswer(ofOtherRequests, format, headers) };
}

/**
 * Returns the error format of a route. A route with two formats has the statuses of the messages protocol and the body schemas
 * of both.
 */
function formatOf({ errors = commonErrors, versionErrors }: DescribedRoute): ErrorFormat {
  if (versionErrors === undefined) return errors;
  return { ...errors, statusOf: versionErrors.statusOf, schema: z.union([errors.schema, versionErrors.schema]) };
}

function errorAnswer(
  codes: readonly ErrorCode[],
  format: ErrorFormat,
  headers: ReturnType<typeof commonHeaders>,
): ZodOpenApiResponseObject {
  return {
    description: codes.map((code) => `- \`${format.nameOf?.(code) ?? code}\`: ${errorMeaning(code)}`).join("\n"),
    headers: { ...headers, ...(codes.some(saysWhenToRetry) ? retryAfterHeader : {}) },
    content: { "application/json": { schema: format.schema } },
  };
}
