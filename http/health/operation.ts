// Owns what the API document says of the health check and its alias.
import type { Operation } from "../operation.ts";

const answers = { 200: [{ contentType: "text/plain; charset=utf-8", description: "`OK`" }] };
const description = "Says that the server is up, not that a model is loaded: that is `GET /v1/models`.";

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
