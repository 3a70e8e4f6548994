// Endpoints of other servers that this server does not have. A request to one gets the error `unsupported` with a message that
// says what to use instead. These endpoints are not routes, so they are not in the API document or the metrics.
import { ServerError } from "../runtime/errors.ts";
import { commonErrors, type ErrorFormat } from "./errors.ts";
import { messagesErrors } from "./messages/errors.ts";
import { ollamaErrors } from "./ollama/errors.ts";

interface MissingEndpoint {
  /** Path of the endpoint, or prefix of several paths. */
  readonly path: string;
  /** Error message: the unsupported feature, and what to use instead. */
  readonly message: string;
  readonly errors?: ErrorFormat;
  /** HTTP status; default: 404. Clients retry after status 501, but not after 404. */
  readonly status?: number;
}

const NO_EDITS = "models of this server make images from text only; use POST /v1/images/generations";
const SEND_WHOLE =
  "send the whole conversation to POST /v1/chat/completions, or use POST /v1/responses with previous_response_id";
const ONE_BY_ONE = "send the requests one by one; the server batches those that run at the same time";

const CONFIGURED =
  "the models of this server are those of its settings; `troupe models` lists models to download, `troupe serve -m NAME` serves one, and with max_model_downloads clients may download more";
const BY_NAME = "models keep their names, and come from the hub or a package index (POST /api/pull)";

/** Paths of Ollama endpoints that exist only with the setting max_model_downloads. */
const changes = ["/api/pull", "/api/delete"];
/** Paths of Ollama endpoints that create models from other models. */
const copies = ["/api/push", "/api/create", "/api/copy"];

const missing: readonly MissingEndpoint[] = [
  ...changes.map((path) => ({ path, message: CONFIGURED, errors: ollamaErrors, status: 400 })),
  ...copies.map((path) => ({ path, message: BY_NAME, errors: ollamaErrors, status: 400 })),
  { path: "/v1/images/edits", message: NO_EDITS },
  { path: "/v1/images/variations", message: NO_EDITS },
  {
    path: "/v1/realtime",
    message:
      "for text over a WebSocket connect to /v1/responses; audio is at /v1/audio/speech and /v1/audio/transcriptions",
  },
  { path: "/v1/uploads", message: "upload a file in one request to POST /v1/files" },
  { path: "/v1/batches", message: `the server has no batch jobs; ${ONE_BY_ONE}` },
  { path: "/v1/messages/batches", message: `the server has no batch jobs; ${ONE_BY_ONE}`, errors: messagesErrors },
  { path: "/v1/fine_tuning", message: "the server does not train models; load a LoRA adapter trained elsewhere" },
  {
    path: "/v1/moderations",
    message: "the server has no moderation; ask a model for a judgement with response_format",
  },
  { path: "/v1/assistants", message: `the server has no assistants; ${SEND_WHOLE}` },
  { path: "/v1/threads", message: `the server has no threads; ${SEND_WHOLE}` },
  { path: "/v1/conversations", message: `the server has no conversation objects; ${SEND_WHOLE}` },
  { path: "/v1/vector_stores", message: "the server has no vector stores; it makes embeddings at POST /v1/embeddings" },
  { path: "/infill", message: "use POST /v1/completions with prompt and suffix" },
  { path: "/props", message: "use GET /v1/models and GET /v1/system/info" },
  { path: "/slots", message: "use GET /metrics" },
];

/**
 * Returns the error for a path that exists on other servers, and the format of the error body; null if the path is not known
 * from other servers.
 */
export function unsupportedEndpoint(
  path: string,
  given: ErrorFormat = commonErrors,
): { readonly error: ServerError; readonly format: ErrorFormat } | null {
  const found = missing.find((endpoint) => path === endpoint.path || path.startsWith(`${endpoint.path}/`));
  if (found === undefined) return null;
  const { errors = given, message, status = 404 } = found;
  const error = new ServerError("unsupported", `${found.path} is not supported: ${message}`);
  return { error, format: { ...errors, statusOf: () => status } };
}
