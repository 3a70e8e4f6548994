// Metrics recorder: counts the requests of one server by observing every exchange. The metrics route sends the rendered text.
import { Registry } from "prom-client";
import type { EngineMetric } from "../../../actors/api/engine-metric.ts";
import type { Inference } from "../../../actors/api/inference.ts";
import type { Exchange, ExchangeObserver } from "../../exchange.ts";
import { namedModel } from "../../json.ts";
import { bringsBody } from "../../server/body.ts";
import type { HttpRequest } from "../../server/edge.ts";
import { engineRegistry } from "./engine-registry.ts";
import { processRegistry } from "./process-registry.ts";
import { type RequestLabels, requestMetrics } from "./request-metrics.ts";

// A method outside this list gets the label "<other>". Client input never becomes a label value, because each label value
// creates a time series that exists until the process ends.
const methods = new Set(["GET", "HEAD", "POST", "PUT", "DELETE", "PATCH"]);
const otherMethod = "<other>";
const unmatchedPath = "<unmatched>";
const noModel = "none";
const unknownModel = "unknown";

export class HttpMetrics implements ExchangeObserver {
  readonly #inference: Inference;
  readonly #metrics = requestMetrics((gauge) => {
    for (const { labels, count } of this.#countInFlight()) gauge.set(labels, count);
  });
  readonly #open = new Set<Exchange>();
  readonly #inFlight = new Map<string, { readonly labels: RequestLabels; count: number }>();

  constructor(inference: Inference) {
    this.#inference = inference;
  }

  began(exchange: Exchange): void {
    this.#open.add(exchange);
  }

  ended(exchange: Exchange): void {
    this.#open.delete(exchange);
    const labels = this.#labelsOf(exchange);
    const answer = { ...labels, status: `${exchange.status}` };
    this.#metrics.requests.inc(answer);
    this.#metrics.durations.observe(answer, exchange.elapsedMs / 1000);
    const bytes = knownBodyBytes(exchange.request);
    if (bytes !== null) this.#metrics.bodies.observe(labels, bytes);
  }

  /** Returns the metrics of requests, engines and this process as Prometheus text. */
  async render(engine: readonly EngineMetric[]): Promise<{ readonly contentType: string; readonly text: string }> {
    const all = Registry.merge([this.#metrics.registry, engineRegistry(engine), processRegistry()]);
    return { contentType: all.contentType, text: await all.metrics() };
  }

  /**
   * Counts the requests in flight anew at each scrape, because the model of a request is not known when it begins. A time
   * series without requests in flight stays in the output, with the value 0.
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

  /** Returns the model that a request names, or the default model. Also works for rejected requests. */
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

/**
 * Returns the size of the request body in bytes; null if there is no body, or if a body without content-length was not fully
 * read.
 */
function knownBodyBytes({ headers, bodyBytes }: HttpRequest): number | null {
  if (!bringsBody(headers)) return null;
  if (bodyBytes > 0) return bodyBytes;
  const declared = Number(headers.get("content-length") ?? "none");
  return Number.isFinite(declared) ? declared : null;
}
