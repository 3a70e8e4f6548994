// Request metrics: the HTTP metrics of the API contract, in a registry of their own. recorder.ts updates them.
import { Counter, Gauge, Histogram, Registry } from "prom-client";

/** Histogram buckets in seconds: the shortest are for rejected requests, the longest for long responses of slow models. */
const durationBuckets = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 600];
/** Histogram buckets in bytes, up to the maximum body size. */
const bodyBuckets = [256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 52_428_800];

const requestLabels = ["method", "path", "model"] as const;
const answerLabels = [...requestLabels, "status"] as const;

export type RequestLabels = Record<(typeof requestLabels)[number], string>;

type InFlightGauge = Gauge<(typeof requestLabels)[number]>;

export interface RequestMetrics {
  readonly registry: Registry;
  readonly requests: Counter<(typeof answerLabels)[number]>;
  readonly durations: Histogram<(typeof answerLabels)[number]>;
  readonly bodies: Histogram<(typeof requestLabels)[number]>;
}

/** Creates the metrics. `setInFlight` is called at each scrape to set the gauge of requests in progress. */
export function requestMetrics(setInFlight: (gauge: InFlightGauge) => void = () => {}): RequestMetrics {
  const registry = new Registry();
  const registers = [registry];
  const requests = new Counter({
    name: "http_requests_total",
    help: "Finished requests; status 499: the client disconnected before the response",
    labelNames: answerLabels,
    registers,
  });
  const durations = new Histogram({
    name: "http_request_duration_seconds",
    help: "Time from the request to the end of the response",
    labelNames: answerLabels,
    buckets: durationBuckets,
    registers,
  });
  const inFlight: InFlightGauge = new Gauge({
    name: "http_requests_in_flight",
    help: "Requests in progress",
    labelNames: requestLabels,
    registers,
    collect: () => setInFlight(inFlight),
  });
  const bodies = new Histogram({
    name: "http_request_body_bytes",
    help: "Size of request bodies, if known",
    labelNames: requestLabels,
    buckets: bodyBuckets,
    registers,
  });
  return { registry, requests, durations, bodies };
}
