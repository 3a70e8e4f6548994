// Text upstreams: the servers of a model in text mode, with the choice of a server and a circuit breaker. A server that fails
// repeatedly gets no requests for a while, and then one request at a time until one succeeds.
import { performance } from "node:perf_hooks";
import { UpstreamConnection } from "../../engines/remote/connection.ts";
import { list, record } from "../../engines/remote/json-shape.ts";
import { type RemoteSettings, UpstreamFailure } from "../../engines/remote/upstream.ts";
import type { RemoteUrlStatistics } from "../messages.ts";
import { chooseUpstream } from "../remote-model/choose-upstream.ts";
import { FailureCount, isRefusedConnection } from "../remote-model/failure-count.ts";

export class TextUpstream {
  readonly url: string;
  readonly connection: UpstreamConnection;
  /** Name of the model on the server; null = not known yet. */
  model: string | null;
  outstanding = 0;
  reason = "it has not answered yet";
  readonly counts = { requests: 0, failures: 0, busy: 0, retries: 0 };
  readonly #settings: RemoteSettings;
  readonly #failures = new FailureCount();
  #closedUntilMs = 0;
  /** Whether the server gets only one request at a time, the trial, to test whether it works again. */
  #isTrying = false;
  #hasTrial = false;
  #isDown = false;

  constructor(url: string, settings: RemoteSettings) {
    this.url = url;
    this.model = settings.model;
    this.#settings = settings;
    this.connection = new UpstreamConnection({ url, ...settings });
  }

  get isUp(): boolean {
    return performance.now() >= this.#closedUntilMs;
  }

  /**
   * Whether the server gets no requests for now, and has failed a trial or refuses connections. Otherwise requests wait for the trial:
   * several connections that break at once do not mean that a server is down.
   */
  get isDown(): boolean {
    return this.#isDown && !this.isUp;
  }

  get hasRoom(): boolean {
    return this.isUp && this.outstanding < this.#settings.slots && !(this.#isTrying && this.#hasTrial);
  }

  get statistics(): RemoteUrlStatistics {
    const up = this.isUp && !this.#isTrying ? 1 : 0;
    return { url: this.url, up, outstanding: this.outstanding, ...this.counts };
  }

  /** Counts a request that begins. Returns whether it is the trial of a server that has failed. Call ended() with this value. */
  began(): boolean {
    this.outstanding++;
    this.counts.requests++;
    this.#hasTrial ||= this.#isTrying;
    return this.#isTrying;
  }

  ended(isTrial: boolean): void {
    this.outstanding--;
    if (isTrial) this.#hasTrial = false;
  }

  succeeded(): void {
    this.#failures.reset();
    this.#isTrying = false;
    this.#isDown = false;
  }

  /** Records a failure. Returns whether the server gets no requests from now on. `isTrial`: result of began(). */
  failed(failure: UpstreamFailure, isTrial: boolean): boolean {
    const { kind, message } = failure;
    if (kind === "busy") this.counts.busy++;
    // The server may have been restarted with another model: if remote_model is unset, the next request asks for the name again.
    else this.model = this.#settings.model;
    if (kind === "busy" || kind === "refused") return false;
    this.counts.failures++;
    this.reason = `${kind}: ${message}`;
    // A request that was sent before the server failed does not count as its trial.
    if (this.#isTrying && !isTrial) return false;
    if (!this.#failures.add(failure)) return false;
    this.#isDown = isTrial || isRefusedConnection(failure);
    this.#closedUntilMs = performance.now() + this.#failures.backoffMs;
    this.#failures.backOff();
    this.#isTrying = true;
    return true;
  }

  /** Queries the server for the name of its model, unless the name is known. Rejects with UpstreamFailure. */
  async find(timeoutMs: number): Promise<string> {
    if (this.model !== null) return this.model;
    const listed = record(await this.connection.json("GET", "/v1/models", null, timeoutMs), "the list of models");
    const [first] = list(listed.data, "data").map((entry) => record(entry, "a model"));
    if (typeof first?.id !== "string") throw new UpstreamFailure("garbage", "it lists no model; set remote_model");
    this.model = first.id;
    return this.model;
  }
}

/** Returns the server for a text, among the servers with free slots; null = no server has a free slot. */
export function chooseByText(
  upstreams: readonly TextUpstream[],
  balance: RemoteSettings["balance"],
  text: string,
): TextUpstream | null {
  return chooseUpstream(
    upstreams,
    balance,
    Int32Array.from(text.slice(0, 4096), (character) => character.charCodeAt(0)),
  );
}
