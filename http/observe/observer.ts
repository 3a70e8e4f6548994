// Owns what those who keep account of requests are to an exchange: the access log, the metrics, the request log, traces.
import type { Exchange } from "../exchange.ts";

export interface ExchangeObserver {
  /** A request has come; its route is known, its model is not. */
  began?(exchange: Exchange): void;
  /** It has ended, answered or not. Must not throw. */
  ended(exchange: Exchange): void;
}
