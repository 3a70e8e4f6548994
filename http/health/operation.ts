// Owns what the API document says of the health check, its alias, and the readiness check.
import type { Operation } from "../operation.ts";

const TEXT = "text/plain; charset=utf-8";

const answers = {
  200: [{ contentType: TEXT, description: "`OK`" }],
  503: [{ contentType: TEXT, description: "What every request needs and is down, a line each; it is started again" }],
};
const description =
  "Says that the process is well: it takes requests, and nothing that all of them need is down. Whether a model is loaded is " +
  "`GET /ready`.";

export const healthOperation: Operation = {
  id: "getHealth",
  tag: "Operations",
  summary: "Whether the server is up",
  description,
  answers,
  errors: [],
};

export const rootOperation: Operation = {
  id: "getRoot",
  tag: "Operations",
  summary: "The same as `/health`",
  description,
  answers,
  errors: [],
};

export const readyOperation: Operation = {
  id: "getReady",
  tag: "Operations",
  summary: "Whether the default model answers requests",
  description:
    "Says that the process is well and the default model is loaded, or is unloaded so that the next request loads it: it had " +
    "rested, or made room for another one.",
  answers: {
    200: [{ contentType: TEXT, description: "`OK`" }],
    503: [{ contentType: TEXT, description: "Why not, a line each: the model is being loaded, or could not be" }],
  },
  errors: [],
};
