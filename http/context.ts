// Owns what a route handler is given beside its request: the models, and the settings of the HTTP front.
import type { Inference } from "../actors/inference.ts";
import type { Exchange } from "./exchange.ts";
import type { Log } from "./log.ts";

/** Settings of the HTTP front, as plain values. */
export interface HttpConfig {
  /** Silence after which a stream gets a comment line; 0 = never. */
  readonly keepAliveMs: number;
  /** A client that reads nothing for this long is cut off. */
  readonly readerStallMs: number;
  readonly accessLog: boolean;
  /** Also log GET /health and GET /. */
  readonly accessLogHealth: boolean;
  readonly disableRequestIdHeader: boolean;
  /** Answer GET /metrics with 503. */
  readonly disableMetrics: boolean;
}

export interface Context {
  readonly inference: Inference;
  readonly config: HttpConfig;
  readonly log: Log;
}

/** Answers one request through its exchange. What it throws becomes the error answer. */
export type RouteHandler = (exchange: Exchange, context: Context) => void | Promise<void>;
