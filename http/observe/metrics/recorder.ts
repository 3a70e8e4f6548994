// Metrics recorder: the HTTP metrics of the API contract, in a separate registry per server. It observes every exchange; the
// metrics route renders the text.
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { EngineMetric } from "../../../actors/api/engine-metric.ts";
import type { Inference } from "../../../actors/api/inference.ts";
import type { Exchange, ExchangeObserver } from "../../exchange.ts";
import { namedModel } from "../../json.ts";
import { bringsBody } from "../../server/body.ts";
import type { HttpRequest } from "../../server/edge.ts";
import { engineRegistry } from "./engine-registry.ts";

/** Histogram buckets in seconds, from a rejected request to a long response of a slow model. */
const durationBuckets = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 600];
/** Histogram buckets in bytes, up to the maximum body size. */
const bodyBuckets = [256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 52_428_800];

const requestLabels = ["method", "path", "model"] as const;
const answerLabels = [...requestLabels, "status"] as const;

type RequestLabels = Record<(typeof requestLabels)[number], string>;

// Client input never becomes a label value, because every label value creates a series that stays until the process ends.
const methods = new Set(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"]);
const otherMethod = "<other>";
const unmatchedPath = "<unmatched>";
const noModel = "none";
const unknownModel = "unknown";

export class HttpMetrics implements ExchangeObserver {
  readonly #inference: Inference;
  readonly #registry = new Registry();
  readonly #open = new Set<Exchange>();
  readonly #inFlight = new Map<string, { readonly labels: RequestLabels; count: number }>();
  readonly #requests: Counter<(typeof answerLabels)[number]>;
  readonly #durations: Histogram<(typeof answerLabels)[number]>;
  readonly #bodies: Histogram<(typeof requestLabels)[number]>;

  constructor(inference: Inference) {
    this.#inference = inference;
    const registers = [this.#registry];
    this.#requests = new Counter({
      ...{
        name: "http_requests_total",
        help: "Finished requests; status 499: the client disconnected before the response",
      },
      ...{ labelNames: answerLabels, registers },
    });
    this.#durations = new Histogram({
      ...{ name: "http_request_duration_seconds", help: "Time from the request to the end of the response" },
      ...{ labelNames: answerLabels, buckets: durationBuckets, registers },
    });
    const gauge = new Gauge({
      ...{ name: "http_requests_in_flight", help: "Requests in progress" },
      ...{ labelNames: requestLabels, registers },
      collect: () => {
        for (const { labels, count } of this.#countInFlight()) gauge.set(labels, count);
      },
    });
    this.#bodies = new Histogram({
      ...{ name: "http_request_body_bytes", help: "Size of request bodies, if known" },
      ...{ labelNames: requestLabels, buckets: bodyBuckets, registers },
    });
  }

  began(exchange: Exchange): void {
    this.#open.add(exchange);
  }

  ended(exchange: Exchange): void {
    this.#open.delete(exchange);
    const labels = this.#labelsOf(exchange);
    const answer = { ...labels, status: `${exchange.status}` };
    this.#requests.inc(answer);
    this.#durations.observe(answer, exchange.elapsedMs / 1000);
    const bytes = knownBodyBytes(exchange.request);
    if (bytes !== null) this.#bodies.observe(labels, bytes);
  }

  /** Returns the metrics of requests and engines as Prometheus text. */
  async render(engine: readonly EngineMetric[]): Promise<{ readonly contentType: string; readonly text: string }> {
    const all = Registry.merge([this.#registry, engineRegistry(engine)]);
    return { contentType: all.contentType, text: await all.metrics() };
  }

  /**
   * Counts the requests in flight at each scrape, since the model of a request is known only after its start. A series without
   * requests stays with the value 0.
   */
  #countInFlight(): Iterable<{ readonly labels: RequestLabels; readonly count: number }> {
    for (const series of this.#inFlight.values()) series.count = 0;
    for (const exchange of this.#open) {
      const labels = this.#labelsOf(exchange);
      const key = JSON.stringify(labels);
      const series = this.#inFlight.get(key) ?? { labels, count: 0 };
      series.count++;
      this.#inFlight.set(key, series);
    }
    return this.#inFlight.values();
  }

  #labelsOf(exchange: Exchange): RequestLabels {
    const { request, route } = exchange;
    return {
      method: methods.has(request.method) ? request.method : otherMethod,
      path: route?.path ?? unmatchedPath,
      model: this.#modelOf(exchange),
    };
  }

  /** Returns the model that a request names, or the default model, even if the request was rejected. */
  #modelOf({ model, route, request }: Exchange): string {
    if (model !== "") return model;
    const place = route?.modelName ?? (route?.kind === "inference" ? "model" : null);
    if (place === null) return noModel;
    const named = place === "query" ? queriedModel(request) : namedModel(request, place);
    if (named === null) return unknownModel;
    const name = typeof named.name === "string" ? named.name : undefined;
    if (place === "model_id" && name === undefined) return unknownModel;
    try {
      return this.#inference.resolveModel(name).id;
    } catch {
      return unknownModel;
    }
  }
}

function queriedModel({ query }: HttpRequest): { readonly name: unknown } {
  return { name: new URLSearchParams(query).get("model") };
}

/** Size of the request body; null if unknown: there is no body, or it has no content-length and was not fully read. */
function knownBodyBytes({ headers, bodyBytes }: HttpRequest): number | null {
  if (!bringsBody(headers)) return null;
  if (bodyBytes > 0) return bodyBytes;
  const declared = Number(headers.get("content-length") ?? "none");
  return Number.isFinite(declared) ? declared : null;
}
