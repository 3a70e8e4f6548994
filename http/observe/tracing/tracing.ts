// Tracing: spans of inference requests, exported by OTLP over HTTP. Loaded only if an endpoint is set. Spans are created when a
// request ends, from the times in its events, so other threads do not depend on tracing.
import {
  type Attributes,
  type Context,
  createTraceState,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  type Tracer,
  trace,
} from "@opentelemetry/api";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import { detectResources, envDetector, resourceFromAttributes } from "@opentelemetry/resources";
import { BasicTracerProvider, BatchSpanProcessor, type SpanExporter } from "@opentelemetry/sdk-trace-base";
import type { Timeline } from "../../../engines/generation.ts";
import { resolvesWithin } from "../../../runtime/clock.ts";
import type { ExchangeObserver } from "../../exchange.ts";
import { CLIENT_GONE, type Exchange } from "../../exchange.ts";
import type { Generation } from "../instrumented-inference.ts";
import type { Log } from "../log.ts";

export interface TracingOptions {
  /** Base address of the collector. Spans are sent to its path `/v1/traces`. */
  readonly endpoint: string;
  readonly version: string;
  readonly log: Log;
}

const maxQueuedSpans = 4096;
const exportTimeoutMs = 10_000;
const closeDeadlineMs = 5000;
const complainEveryMs = 60_000;
const maxUserAgentLength = 200;

export class Tracing implements ExchangeObserver {
  readonly #provider: BasicTracerProvider;
  readonly #tracer: Tracer;

  constructor({ endpoint, version, log }: TracingOptions) {
    const url = `${endpoint.replace(/\/+$/, "")}/v1/traces`;
    const exporter = complaining(
      new OTLPTraceExporter({ url, timeoutMillis: exportTimeoutMs }),
      new URL(url).host,
      log,
    );
    const own = resourceFromAttributes({ "service.name": "troupe", "service.version": version });
    this.#provider = new BasicTracerProvider({
      resource: own.merge(detectResources({ detectors: [envDetector] })),
      spanProcessors: [new BatchSpanProcessor(exporter, { maxQueueSize: maxQueuedSpans })],
    });
    this.#tracer = this.#provider.getTracer("troupe", version);
  }

  ended(exchange: Exchange): void {
    const { request, route, generation, receivedAt } = exchange;
    const span = this.#tracer.startSpan(
      `${request.method} ${route?.path}`,
      { kind: SpanKind.SERVER, startTime: receivedAt, attributes: requestAttributes(exchange) },
      parentOf(request.headers),
    );
    const end = receivedAt + exchange.elapsedMs;
    if (span.isRecording()) {
      span.setAttributes(answerAttributes(exchange));
      if (generation !== null) span.setAttributes(generationAttributes(generation, exchange.model));
      if (exchange.status >= 500 || generation?.error != null) setFailed(span, exchange);
      const timeline = generation?.usage?.timeline;
      if (timeline !== undefined) this.#stages(trace.setSpan(ROOT_CONTEXT, span), timeline);
    }
    span.end(end);
  }

  /** Sends the remaining spans. Stops waiting at the deadline. */
  async close(deadlineMs: number = closeDeadlineMs): Promise<void> {
    // A failure needs no handling here, because the exporter has logged it.
    const shutdown = this.#provider.shutdown().catch(() => {});
    await resolvesWithin(deadlineMs, shutdown);
  }

  /** Creates one span for each stage of a generation. The stages may run in different threads or processes. */
  #stages(parent: Context, { startedAt, queuedAt, scheduledAt, firstTokenAt, endedAt }: Timeline): void {
    const stages = [
      ["template+tokenise", startedAt, queuedAt],
      ["queue", queuedAt, scheduledAt],
      ["prefill", scheduledAt, firstTokenAt],
      ["decode", firstTokenAt, endedAt],
    ] as const;
    for (const [name, start, end] of stages) {
      // A stage that was not reached has no time, so it gets no span.
      if (start <= 0 || end < start) continue;
      this.#tracer.startSpan(name, { startTime: start }, parent).end(end);
    }
  }
}

const traceparentForm = /^(?!ff)[\da-f]{2}-([\da-f]{32})-([\da-f]{16})-([\da-f]{2})(?:-.*)?$/;

/**
 * Reads the caller's span from the W3C Trace Context headers. Returns the root context if traceparent is absent or invalid. The
 * spans inherit the vendor-specific state in tracestate.
 */
function parentOf(headers: ReadonlyMap<string, string>): Context {
  const [, traceId, spanId, flags] = traceparentForm.exec(headers.get("traceparent") ?? "") ?? [];
  if (traceId === undefined || spanId === undefined || flags === undefined) return ROOT_CONTEXT;
  return trace.setSpanContext(ROOT_CONTEXT, {
    traceId,
    spanId,
    traceFlags: Number.parseInt(flags, 16) & 1,
    isRemote: true,
    traceState: createTraceState(headers.get("tracestate")),
  });
}

function requestAttributes({ id, request, route }: Exchange): Attributes {
  return {
    "http.request.method": request.method,
    "http.route": route?.path,
    "url.path": request.path,
    "url.scheme": "http",
    "client.address": request.address,
    "user_agent.original": request.headers.get("user-agent")?.slice(0, maxUserAgentLength),
    "http.response.header.x-request-id": [id],
  };
}

function answerAttributes({ request, status, sentBytes }: Exchange): Attributes {
  return {
    "http.request.body.size": request.bodyBytes,
    "http.response.body.size": sentBytes,
    ...(status === CLIENT_GONE ? { "error.type": "client_gone" } : { "http.response.status_code": status }),
  };
}

function generationAttributes({ kind, promptTokens, usage, finishReasons }: Generation, model: string): Attributes {
  return {
    "gen_ai.operation.name": kind,
    "gen_ai.provider.name": "troupe",
    "gen_ai.request.model": model,
    "gen_ai.usage.input_tokens": promptTokens ?? undefined,
    "gen_ai.usage.output_tokens": usage?.completionTokens,
    "gen_ai.response.finish_reasons": finishReasons.length > 0 ? finishReasons : undefined,
  };
}

function setFailed(span: Span, { status, generation }: Exchange): void {
  const error = generation?.error ?? null;
  span.setAttribute("error.type", error?.code ?? `${status}`);
  span.setStatus({ code: SpanStatusCode.ERROR, ...(error !== null && { message: error.message }) });
}

/** Wraps the exporter and logs its failures, at most once per `complainEveryMs`. */
function complaining(exporter: SpanExporter, collector: string, log: Log): SpanExporter {
  let lost = 0;
  let saidAt = Number.NEGATIVE_INFINITY;
  return {
    shutdown: () => exporter.shutdown(),
    export(spans, done) {
      exporter.export(spans, (result) => {
        if (result.error !== undefined) {
          lost += spans.length;
          if (performance.now() - saidAt >= complainEveryMs) {
            log.warn({ collector, lost, reason: result.error.message }, "spans could not be exported and are lost");
            saidAt = performance.now();
            lost = 0;
          }
        }
        done(result);
      });
    },
  };
}
