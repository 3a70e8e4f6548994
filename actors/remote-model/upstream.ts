// Upstream: one server of a remote model, with its circuit breaker. A server that fails repeatedly gets no requests until a probe succeeds.
import { UpstreamConnection } from "../../engines/remote/connection.ts";
import { checkTokens, discover, type Found } from "../../engines/remote/discover.ts";
import type { SplitCharacters } from "../../engines/remote/split-characters.ts";
import { type RemoteSettings, UpstreamFailure } from "../../engines/remote/upstream.ts";
import type { RemoteUrlStatistics } from "../messages.ts";
import { FailureCount, isRefusedConnection } from "./failure-count.ts";

export interface UpstreamOptions {
  readonly url: string;
  readonly settings: RemoteSettings;
  readonly splits: SplitCharacters;
  /** Token to use in probe requests; null = the model computes embeddings. */
  readonly probeToken: number | null;
  /** Called with a log line for the operator. */
  readonly onNotice: (notice: string) => void;
}

export class Upstream {
  readonly url: string;
  readonly connection: UpstreamConnection;
  /** What the server reported about its model; null = no response yet. */
  found: Found | null = null;
  /** Number of requests that the server is processing. */
  outstanding = 0;
  /** Time of the latest event of a stream, or of the latest embeddings, in ms of performance.now(). Such a server needs no probe. */
  lastEventMs = 0;
  readonly counts = { requests: 0, failures: 0, busy: 0, retries: 0 };
  readonly #options: UpstreamOptions;
  #isOpen = true;
  #isDown = true;
  /** Whether a probe has put the server back into service, and no request or probe has succeeded since. */
  #isOnTrial = false;
  readonly #failures = new FailureCount();
  /** Time of the next probe, in ms of performance.now(). */
  #probeAtMs = 0;
  #isProbing = false;
  #probeSentMs = 0;
  #downSinceMs = 0;
  #reason = "it has not answered yet";
  /** Facts of the server that responded first, with which requests are prepared; the other servers must match. null = no response yet. */
  #expected: Found | null = null;

  constructor(options: UpstreamOptions) {
    const { url, settings } = options;
    this.#options = options;
    this.url = url;
    this.connection = new UpstreamConnection({ url, ...settings });
  }

  /** Whether the server gets requests. */
  get isUp(): boolean {
    return !this.#isOpen;
  }

  /**
   * Whether the server gets no requests, and a probe has failed or connections are refused. A server that is neither up nor down waits for
   * its probe, and requests wait too: several connections that break at once do not mean that a server is down.
   */
  get isDown(): boolean {
    return this.#isDown;
  }

  /** Reason why the server gets no requests. */
  get reason(): string {
    return this.#reason;
  }

  get slots(): number {
    const { slots } = this.#options.settings;
    return Math.min(slots, this.found?.model.slots ?? slots);
  }

  get hasRoom(): boolean {
    return this.isUp && this.outstanding < this.slots;
  }

  get statistics(): RemoteUrlStatistics {
    return { url: this.url, up: this.isUp ? 1 : 0, outstanding: this.outstanding, ...this.counts };
  }

  /** Call when the server has sent the first token of a request, or embeddings. */
  succeeded(nowMs: number): void {
    this.lastEventMs = nowMs;
    this.#failures.reset();
    this.#isOnTrial = false;
    // A server out of service is probed when it is due: requests wait for that.
    if (!this.#isOpen) this.#probeAtMs = nowMs + this.#options.settings.probeIntervalMs;
  }

  /** Call when a request has failed. */
  failed(failure: UpstreamFailure, nowMs: number): void {
    const { kind, message } = failure;
    if (kind === "busy") this.counts.busy++;
    if (kind === "busy" || kind === "refused") return;
    this.counts.failures++;
    const isTooMany = this.#failures.add(failure);
    if (this.#isOpen || !isTooMany) return;
    this.#open(`${kind}: ${message}`, nowMs);
    this.#isDown = this.#isOnTrial || isRefusedConnection(failure);
  }

  /** Probes the server if a probe is due. Never rejects. */
  async tick(nowMs: number): Promise<void> {
    const { probeIntervalMs } = this.#options.settings;
    if (this.#isProbing) {
      const isLate = nowMs - this.#probeSentMs > this.#timeoutMs && this.#isSilentSince(this.#probeSentMs);
      this.#isDown ||= this.#isOpen && isLate;
      return;
    }
    const noProbeBeforeMs = this.#isOpen ? 0 : this.lastEventMs + probeIntervalMs;
    if (nowMs < Math.max(this.#probeAtMs, noProbeBeforeMs)) return;
    this.#isProbing = true;
    this.#probeSentMs = nowMs;
    const wasOpen = this.#isOpen;
    try {
      if (this.#isOpen) await this.find();
      else await this.connection.json("GET", "/v1/models", null, this.#timeoutMs);
      // Requests have failed meanwhile. A health check does not decide whether the server gets requests again.
      if (this.#isOpen !== wasOpen) return;
      this.#probeAtMs = performance.now() + probeIntervalMs;
      if (this.#isOpen) this.#close();
      else {
        this.#failures.clear();
        this.#isOnTrial = false;
      }
    } catch (error) {
      if (this.#isOpen !== wasOpen) return;
      const failure = error instanceof UpstreamFailure ? error : new UpstreamFailure("failed", String(error));
      this.#probeAtMs = performance.now() + this.#failures.backoffMs;
      if (this.#isOpen) {
        const reason = `${failure.kind}: ${failure.message}`;
        const isNew = this.#downSinceMs === 0 && this.#reason !== reason;
        if (isNew) this.#options.onNotice(`${this.url} gets no requests (${reason})`);
        this.#reason = reason;
        this.#isDown ||= failure.kind !== "timeout" || this.#isSilentSince(nowMs);
        this.#failures.backOff();
      } else if (failure.kind === "timeout" && this.#isComputing) {
        // The request decides: if it fails too, the server gets no more requests.
        this.#failures.allowNone();
      } else if (this.lastEventMs < nowMs) this.failed(failure, performance.now());
    } finally {
      this.#isProbing = false;
    }
  }

  /** Queries the server for its model. Rejects with UpstreamFailure. */
  async find(): Promise<Found> {
    const { settings, splits, probeToken } = this.#options;
    const timeoutMs = this.#timeoutMs;
    const found = await discover(this.connection, { model: settings.model, splits, timeoutMs });
    if (probeToken !== null) await checkTokens(this.connection, found, probeToken, settings.firstTokenTimeoutMs);
    this.#checkSame(found);
    this.found = found;
    return found;
  }

  /** Sets the facts that the server must match. */
  expect(found: Found): void {
    this.#expected = found;
  }

  /** Allows requests to the server. Call after find(). */
  admit(): void {
    this.#isOpen = false;
    this.#isDown = false;
    this.#probeAtMs = performance.now() + this.#options.settings.probeIntervalMs;
  }

  close(): void {
    this.connection.close();
  }

  /**
   * Throws if the server does not match: with another model it would return other tokens, and with less context it would reject
   * prompts.
   */
  #checkSame({ model, dialect }: Found): void {
    const expected = this.#expected;
    if (expected === null) return;
    const differs = (what: string, wanted: unknown, got: unknown) => {
      if (wanted !== got)
        throw new UpstreamFailure("garbage", `expected ${what} ${wanted}, as at the start; got ${got}`);
    };
    differs("tokens in the vocabulary:", expected.model.vocabSize, model.vocabSize);
    differs("grammars in", expected.dialect.grammar, dialect.grammar);
    const { contextTokens } = expected.model;
    differs("a context of", contextTokens, Math.min(contextTokens, model.contextTokens));
  }

  /** Whether the server computes embeddings. It may answer no other request meanwhile, so a probe without an answer does not decide. */
  get #isComputing(): boolean {
    return this.#options.probeToken === null && this.outstanding > 0;
  }

  #isSilentSince(ms: number): boolean {
    return this.lastEventMs < ms && !this.#isComputing;
  }

  get #timeoutMs(): number {
    return this.#options.settings.connectTimeoutMs;
  }

  #open(reason: string, nowMs: number): void {
    this.#isOpen = true;
    this.#reason = reason;
    this.#downSinceMs = nowMs;
    this.#probeAtMs = nowMs + this.#failures.backoffMs;
    this.#options.onNotice(`${this.url} failed (${reason}); it gets no requests until it answers GET /v1/models`);
  }

  #close(): void {
    this.#isOpen = false;
    this.#isDown = false;
    this.#isOnTrial = true;
    // A single further failure takes the server out of service again, for a longer time.
    this.#failures.allowNone();
    const seconds = ((performance.now() - this.#downSinceMs) / 1000).toFixed(1);
    const again = this.#downSinceMs === 0 ? "answers now" : `answers again after ${seconds} s`;
    this.#options.onNotice(`${this.url} ${again}; it gets requests`);
  }
}
