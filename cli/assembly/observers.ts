// Optional request observers: the request log (setting `log`) and traces (setting `otlp_endpoint`). `serve` opens them before
// it listens, and closes them after the last response.
import type { ExchangeObserver } from "../../http/exchange.ts";
import { RequestLog } from "../../http/observe/request-log.ts";
import type { Logger } from "../../runtime/log/log.ts";
import type { Config } from "../config/config.ts";
import { version } from "../version.ts";

export interface ClosableObserver extends ExchangeObserver {
  /** Writes buffered data, then closes the observer. */
  close(): Promise<void>;
}

/** Opens the configured observers. Throws config_invalid if the request log or the tracing packages are unusable. */
export async function openObservers(config: Config, log: Logger): Promise<readonly ClosableObserver[]> {
  const observers: ClosableObserver[] = [];
  if (config.log !== null) observers.push(await RequestLog.open(config.log, log));
  const { otlpEndpoint } = config.troupe;
  if (otlpEndpoint !== null) {
    const { openTracing } = await import("../../http/observe/tracing/open-tracing.ts");
    observers.push(await openTracing({ endpoint: otlpEndpoint, version, log }));
  }
  return observers;
}
