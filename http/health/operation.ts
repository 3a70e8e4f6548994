// OpenAPI description of the health check, its alias and the readiness check.
import type { Operation } from "../operation.ts";

const TEXT = "text/plain; charset=utf-8";

const answers = {
  200: [{ contentType: TEXT, description: "`OK`" }],
  503: [
    {
      contentType: TEXT,
      description: "Failed parts that every request needs, one per line; the server is restarting them",
    },
  ],
};
const description =
  "Liveness: the process accepts requests, and every part that all requests need is running. For the state of a model see " +
  "`GET /ready`.";

export const healthOperation: Operation = {
  id: "getHealth",
  tag: "Operations",
  summary: "Health check",
  description,
  answers,
  errors: [],
};

export const rootOperation: Operation = {
  id: "getRoot",
  tag: "Operations",
  summary: "Alias of `/health`; a browser is redirected to the web UI",
  description,
  answers,
  errors: [],
};

export const readyOperation: Operation = {
  id: "getReady",
  tag: "Operations",
  summary: "Readiness check: whether the server should get new requests",
  description:
    "Readiness: the process is healthy and does not stop, the default model is loaded, or was unloaded (idle, or evicted for " +
    "another model) and the next request loads it, and fewer than `ready_max_queue` sequences wait for one of its slots.",
  answers: {
    200: [{ contentType: TEXT, description: "`OK`" }],
    503: [
      {
        contentType: TEXT,
        description: "The reasons, one per line: for example, the model is being loaded, or the server stops",
      },
    ],
  },
  errors: [],
};
