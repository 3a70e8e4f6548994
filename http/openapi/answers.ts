// Owns what the API document says of errors: which codes an operation may answer with, by status, and the headers of
// answers. The codes come from the operations, statuses and bodies from the error format of the route.
import type { oas31, ZodOpenApiResponseObject, ZodOpenApiResponsesObject } from "zod-openapi";
import { DefaultMap } from "../../runtime/collections.ts";
import { type ErrorCode, errorMeaning } from "../../runtime/errors.ts";
import { commonErrors, type ErrorFormat, requestIdHeaders, saysWhenToRetry } from "../errors.ts";
import type { DescribedRoute } from "../route.ts";

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
/** Whatever the operation: said of each under `default`. */
const ofOtherRequests: readonly ErrorCode[] = [
  "method_not_allowed",
  "body_too_large",
  "queue_full",
  "invalid_request",
  "headers_too_large",
  "request_timeout",
  "forbidden",
];

export const headerComponents: Record<string, oas31.HeaderObject> = {
  RequestId: {
    description:
      "The request's own x-request-id where it is fit to be echoed, else a new one; left out where it is disabled",
    schema: { type: "string" },
  },
  RetryAfter: { description: "Seconds after which trying again may help", schema: { type: "integer", minimum: 0 } },
};

const requestIdHeader = { $ref: "#/components/headers/RequestId" };
/** Of answers that say when to try again. */
export const retryAfterHeader = { "retry-after": { $ref: "#/components/headers/RetryAfter" } };

/** The headers of every answer of a route. */
export function commonHeaders({ errors = commonErrors }: DescribedRoute) {
  return Object.fromEntries(requestIdHeaders(errors).map((name) => [name, requestIdHeader]));
}

/** The codes an operation may answer with, each once. */
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

/** The error answers of an operation, by status, and `default` for those of any request. */
export function errorAnswers(route: DescribedRoute): ZodOpenApiResponsesObject {
  const format = route.errors ?? commonErrors;
  const headers = commonHeaders(route);
  const byStatus = new DefaultMap<number, ErrorCode[]>(() => []);
  for (const code of codesOf(route)) byStatus.get(format.statusOf(code)).push(code);
  const answers = [...byStatus].map(([status, codes]) => [String(status), errorAnswer(codes, format, headers)]);
  return { ...Object.fromEntries(answers), default: errorAnswer(ofOtherRequests, format, headers) };
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
