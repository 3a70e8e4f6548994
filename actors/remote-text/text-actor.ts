// Text actor: generates with a model whose upstream servers return text only. Requests wait for a server with a free slot,
// clients take turns, and an attempt that fails before its first event is retried. Runs on the model's own thread.
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { queueFull } from "../../engines/decoding/scheduler/queue/queue-full.ts";
import type { GenerateEvent, GenerateRequest, Usage } from "../../engines/generation.ts";
import { chatBody } from "../../engines/remote/chat.ts";
import { type RemoteSettings, UpstreamFailure } from "../../engines/remote/upstream.ts";
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { EventOutlet } from "../../runtime/actor/event-outlet.ts";
import { StreamHub } from "../../runtime/actor/stream.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { fromErrorRecord, ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import { changedContent, openContent } from "../api/sealed-content.ts";
import { type EndCounts, type RemoteTextProtocol, remoteTextChannel, remoteTextWindow } from "../messages.ts";
import { type StreamClock, StreamLatencies } from "../model/stream-latency.ts";
import { retryDelayMs } from "../remote-model/failure-count.ts";
import { attemptsFailed, noServer, queueTimeout, refusedByServer } from "../remote-model/failures.ts";
import { remoteStatistics } from "../remote-model/remote-statistics.ts";
import { callText } from "./text-call.ts";
import { chooseByText, type TextUpstream } from "./text-upstreams.ts";

/** Interval in ms at which free slots are looked for while every available server is full. */
const fullMs = 50;

export interface TextActorOptions {
  readonly settings: RemoteSettings;
  readonly upstreams: readonly TextUpstream[];
  /** Maximum time in ms that a request waits for a server with a free slot; 0 = no limit. */
  readonly queueTimeoutMs: number;
  readonly maxQueue: number;
  readonly front: Endpoint;
  readonly onNotice: (notice: string) => void;
}

export class TextActor implements Behaviour<RemoteTextProtocol> {
  readonly #options: TextActorOptions;
  readonly #hub: StreamHub;
  readonly #slots: number;
  readonly #turns: Gate;
  readonly #calls = new Set<AbortController>();
  readonly #ended: EndCounts = { stop: 0, length: 0, cancelled: 0, error: 0 };
  readonly #latencies = new StreamLatencies();
  #tokens = 0;
  #promptTokens = 0;

  constructor(options: TextActorOptions) {
    this.#options = options;
    this.#hub = new StreamHub(options.front, { channel: remoteTextChannel, window: remoteTextWindow });
    this.#slots = options.settings.slots * options.upstreams.length;
    this.#turns = new Gate(this.#slots);
  }

  readonly generate: Behaviour<RemoteTextProtocol>["generate"] = ({ stream, request }) => {
    const ended = new AbortController();
    const outlet = new EventOutlet<GenerateEvent>(this.#hub, stream, () => ended.abort(cancelled()));
    void this.#run(request, outlet, ended.signal)
      .catch((error: unknown) => outlet.sendLast({ type: "error", error: toErrorRecord(error) }))
      .finally(() => {
        outlet.end();
        this.#calls.delete(ended);
      });
    this.#calls.add(ended);
  };

  readonly statistics: Behaviour<RemoteTextProtocol>["statistics"] = async () => {
    const { upstreams } = this.#options;
    const running = upstreams.reduce((sum, { outstanding }) => sum + outstanding, 0);
    return remoteStatistics({
      upstreams,
      slots: this.#slots,
      waiting: Math.max(0, this.#calls.size - running),
      tokens: this.#tokens,
      promptTokens: this.#promptTokens,
      ended: { ...this.#ended },
      latencies: this.#latencies.snapshot(),
    });
  };

  stop(): void {
    for (const ended of this.#calls) ended.abort(cancelled());
    for (const { connection } of this.#options.upstreams) connection.close();
  }

  async #run(request: GenerateRequest, outlet: EventOutlet<GenerateEvent>, signal: AbortSignal): Promise<void> {
    const { maxQueue, queueTimeoutMs } = this.#options;
    if (this.#calls.size >= this.#slots + maxQueue) throw queueFull(maxQueue, 1);
    const startedAt = Date.now();
    const startedMs = performance.now();
    const at = (ms: number): number => startedAt + ms - startedMs;
    const { prompt, grammar, tools } = request;
    const opened = prompt.kind === "sealed" ? openContent(prompt) : { prompt, grammar, tools };
    const content = request.changes === undefined ? opened : changedContent(opened, request.changes);
    // Built before the wait, so that an invalid request is rejected at once.
    const text = chatBody("", request, content);
    const queuedMs = performance.now();
    const limit = new AbortController();
    const endWait = () => limit.abort(fromErrorRecord(queueTimeout(performance.now() - queuedMs)));
    const timer = queueTimeoutMs > 0 ? setTimeout(endWait, queueTimeoutMs) : undefined;
    const run = async (): Promise<void> => {
      clearTimeout(timer);
      const { series, receivedAt } = request;
      const clock = series === null ? null : this.#latencies.open(series, Date.now() - receivedAt, performance.now());
      const result = await this.#attempts(text, (model) => chatBody(model, request, content), request.choices, outlet, {
        signal,
        queuedMs,
        clock,
      });
      const endMs = performance.now();
      const { sentMs, firstMs } = result;
      this.#tokens += result.usage.completionTokens;
      this.#promptTokens += Math.max(0, result.usage.promptTokens - result.usage.cachedTokens);
      for (const reason of result.reasons) this.#ended[reason === "length" ? "length" : "stop"]++;
      const usage: Usage = {
        ...result.usage,
        promptSeconds: (firstMs - sentMs) / 1000,
        completionSeconds: (endMs - firstMs) / 1000,
        totalSeconds: (endMs - startedMs) / 1000,
        timeline: {
          ...{
            startedAt,
            queuedAt: at(queuedMs),
            scheduledAt: at(sentMs),
            firstTokenAt: at(firstMs),
            endedAt: at(endMs),
          },
        },
      };
      outlet.sendLast({ type: "done", usage });
    };
    try {
      await this.#turns.pass(run, request.client, AbortSignal.any([signal, limit.signal]));
    } catch (error) {
      this.#ended[signal.aborted ? "cancelled" : "error"] += request.choices;
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  async #attempts(
    text: string,
    bodyFor: (model: string) => string,
    choices: number,
    outlet: EventOutlet<GenerateEvent>,
    {
      signal,
      queuedMs,
      clock,
    }: { readonly signal: AbortSignal; readonly queuedMs: number; readonly clock: StreamClock | null },
  ) {
    const { settings, upstreams, onNotice } = this.#options;
    const avoided = new Set<TextUpstream>();
    let waitsFromMs = queuedMs;
    for (let attempt = 1; ; attempt++) {
      const others = upstreams.filter((upstream) => !avoided.has(upstream));
      if (signal.aborted) throw cancelled();
      this.#checkWait(waitsFromMs);
      // Servers on which this request has failed are used again only if no other server is up. If the other servers are full, the
      // request waits.
      const candidates = others.some(({ isUp }) => isUp) ? others : upstreams;
      const upstream = chooseByText(candidates, settings.balance, text);
      if (upstream === null) {
        if (upstreams.every(({ isDown }) => isDown)) throw noServer(upstreams);
        // All servers that are up are full, or a trial is due. The first happens if other servers are down, because #turns admits as
        // many requests as all servers together have slots.
        await sleep(fullMs);
        attempt--;
        continue;
      }
      const isTrial = upstream.began();
      let hasBegun = false;
      const sentMs = performance.now();
      const onFirst = (): void => {
        hasBegun = true;
        // The time between events is not measured, because an event may contain several tokens.
        clock?.took(1, performance.now());
        upstream.succeeded();
        // The number of prompt tokens is only known at the end, from the usage.
        outlet.sendLast({ type: "begin", promptTokens: 0, cachedTokens: 0 });
      };
      const send = async (events: readonly GenerateEvent[]): Promise<void> => {
        for (const event of events) await outlet.send(event);
      };
      const call = async () => {
        const body = bodyFor(await upstream.find(settings.connectTimeoutMs));
        return await callText({ upstream, body, choices, settings, signal, send }, onFirst);
      };
      try {
        return { ...(await call().finally(() => upstream.ended(isTrial))), sentMs };
      } catch (error) {
        if (!(error instanceof UpstreamFailure)) throw error;
        if (signal.aborted) throw cancelled();
        if (upstream.failed(error, isTrial))
          onNotice(`${upstream.url} failed (${upstream.reason}); it gets no requests for a while`);
        if (error.kind === "refused") throw refusedByServer(upstream.url, error);
        if (hasBegun || attempt > settings.retries)
          throw attemptsFailed(upstream.url, error, attempt, hasBegun ? 1 : 0);
        upstream.counts.retries++;
        avoided.add(upstream);
        waitsFromMs = performance.now();
        if (avoided.size === upstreams.length) {
          avoided.clear();
          await sleep(retryDelayMs(attempt, error));
        }
      }
    }
  }

  /** Throws queue_timeout if a request has waited too long since it came or since its last attempt failed. */
  #checkWait(waitsFromMs: number): void {
    const waitedMs = performance.now() - waitsFromMs;
    const { queueTimeoutMs } = this.#options;
    if (queueTimeoutMs > 0 && waitedMs > queueTimeoutMs) throw fromErrorRecord(queueTimeout(waitedMs));
  }
}

function cancelled(): ServerError {
  return new ServerError("cancelled", "the request was cancelled");
}
