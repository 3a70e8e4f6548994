// Owns what is counted of requests, by the contract's names and labels, in a registry of its own. One a server; told of each
// request by its exchange, and asked for text by the route.
import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { EngineMetric } from "../../../actors/api/engine-metric.ts";
import type { Inference } from "../../../actors/api/inference.ts";
import type { Exchange, ExchangeObserver } from "../../exchange.ts";
import { namedModel } from "../../json.ts";
import { bringsBody } from "../../server/body.ts";
import type { HttpRequest } from "../../server/edge.ts";
import { engineRegistry } from "./engine-registry.ts";

/** Seconds: from a refusal to a long answer of a slow model. */
const durationBuckets = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160, 320, 600];
/** Bytes, up to the largest body. */
const bodyBuckets = [256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 52_428_800];

const requestLabels = ["method", "path", "model"] as const;
const answerLabels = [...requestLabels, "status"] as const;

type RequestLabels = Record<(typeof requestLabels)[number], string>;

// What a client sends never becomes a label: each value of one is a series that is kept for good.
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
        help: "Requests that have ended; status 499: the client left before its answer",
      },
      ...{ labelNames: answerLabels, registers },
    });
    this.#durations = new Histogram({
      ...{ name: "http_request_duration_seconds", help: "From a request to the end of its answer" },
      ...{ labelNames: answerLabels, buckets: durationBuckets, registers },
    });
    const gauge = new Gauge({
      ...{ name: "http_requests_in_flight", help: "Requests that have not ended" },
      ...{ labelNames: requestLabels, registers },
      collect: () => {
        for (const { labels, count } of this.#countInFlight()) gauge.set(labels, count);
      },
    });
    this.#bodies = new Histogram({
      ...{ name: "http_request_body_bytes", help: "Bodies of requests whose size is known" },
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

  /** All there is to say of requests and engines, as text. */
  async render(engine: readonly EngineMetric[]): Promise<{ readonly contentType: string; readonly text: string }> {
    const all = Registry.merge([this.#registry, engineRegistry(engine)]);
    return { contentType: all.contentType, text: await all.metrics() };
  }

  /** Counted when somebody looks: a request learns its model on its way. What was once seen goes on as 0. */
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

  /** A model that the request names, or means by naming none, also where it was then refused. */
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

/** null where it is not known: a request without a body, and a body of no declared length that was not read to its end. */
function knownBodyBytes({ headers, bodyBytes }: HttpRequest): number | null {
  if (!bringsBody(headers)) return null;
  if (bodyBytes > 0) return bodyBytes;
  const declared = Number(headers.get("content-length") ?? "none");
  return Number.isFinite(declared) ? declared : null;
}
