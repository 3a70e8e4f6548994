// Owns who keeps account of requests besides the access log and the metrics: the request log and the traces, where they are
// set. Opened by `serve` before it listens, and closed by it when the last answer has ended.
import type { ExchangeObserver } from "../../http/exchange.ts";
import { RequestLog } from "../../http/observe/request-log.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { Config } from "../config/config.ts";
import { version } from "../version.ts";

export interface ClosableObserver extends ExchangeObserver {
  /** Writes out what is left. */
  close(): Promise<void>;
}

/** Throws config_invalid where the request log cannot be opened. */
export async function openObservers(config: Config, log: Logger): Promise<readonly ClosableObserver[]> {
  const observers: ClosableObserver[] = [];
  if (config.log !== null) observers.push(await RequestLog.open(config.log, log));
  const { otlpEndpoint } = config.troupe;
  if (otlpEndpoint !== null) {
    const { Tracing } = await import("../../http/observe/tracing/tracing.ts");
    observers.push(new Tracing({ endpoint: otlpEndpoint, version, log }));
  }
  return observers;
}
