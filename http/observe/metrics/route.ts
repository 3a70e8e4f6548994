// GET /metrics: metrics of requests and engines as Prometheus text. The engines are queried on every scrape.
import { ServerError } from "../../../runtime/errors.ts";
import type { RouteHandler } from "../../context.ts";

export const metrics: RouteHandler = async (exchange, { inference, replicas, metrics: recorder }) => {
  if (recorder === null) {
    throw new ServerError(
      "metrics_disabled",
      "metrics are switched off here; start the server without disable_metrics",
    );
  }
  const [engine, shared] = await Promise.all([inference.engineMetrics(), replicas?.metrics() ?? []]);
  const { contentType, text } = await recorder.render([...engine, ...shared]);
  exchange.send(200, { "content-type": contentType }, text);
};
