// Owns GET /health and GET /: the server is up. Says nothing of any model; that is GET /v1/models.
import type { RouteHandler } from "../context.ts";

export const health: RouteHandler = (exchange) => exchange.text(200, "OK");
