// Proofs: runs the first compilation of each grammar. A compilation may abort, hang or use up the memory of its
// thread, so it runs on a thread without matchers. Two queues, the quick lane and the slow lane, run in parallel and
// compile one grammar at a time each. A grammar starts in the quick lane, unless a recent grammar of its client was
// slow. It moves to the slow lane if its compilation becomes slow. A client whose recent grammars were quick is
// trusted: while the quick lane compiles a grammar of a client that is not trusted, one grammar of a trusted client
// is compiled at the same time. A grammar for which no request waits is not compiled. The limit of waiting requests
// is shared fairly between clients.

import type { ServerError } from "../../../runtime/errors.ts";
import { ClientPaces } from "../../../runtime/queues/client-paces.ts";
import { QueueShares } from "../../../runtime/queues/queue-shares.ts";
import { abandoned } from "./abandoned.ts";
import { abandonedCompileMs, slowCompileMs } from "./limits.ts";
import type { CompiledGrammar, GrammarAsker } from "./matcher.ts";
import type { ProvedGrammar } from "./matcher-proxy.ts";
import { type Asker, displacedAsker, type Lane, type Proof, ProofQueue, tooManyWait } from "./proof-queue.ts";
import type { NumberedSource } from "./thread/messages.ts";
import type { GrammarThread } from "./thread.ts";
import type { ThreadPool } from "./thread-pool.ts";

const lanes = ["quick", "slow"] as const;

export interface ProofsOptions {
  readonly pool: ThreadPool;
  /** Maximum number of requests that wait for grammars. Several requests may wait for the same grammar. */
  readonly maxAskers: number;
  readonly compileLimitMs: number;
  readonly onProved: (grammar: ProvedGrammar) => CompiledGrammar;
  readonly onRefused: (digest: string, error: ServerError) => void;
}

export class Proofs {
  readonly #options: ProofsOptions;
  readonly #queue = new ProofQueue();
  readonly #paces = new ClientPaces(slowCompileMs);
  readonly #running: Readonly<Record<Lane, Set<Proof>>> = { quick: new Set(), slow: new Set() };
  /** All waiting requests, most recent last, with the grammars they wait for. */
  readonly #askers = new Map<Asker, Proof>();
  readonly #shares = new QueueShares();

  constructor(options: ProofsOptions) {
    this.#options = options;
  }

  /**
   * Compiles a grammar for a request, or joins the compilation of the same grammar. The id of `grammar` must be new.
   * Rejects like GrammarHost.compile().
   */
  ask(digest: string, grammar: NumberedSource, { client, signal }: GrammarAsker): Promise<CompiledGrammar> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) throw abandoned();
      const displaced = this.#displacedBy(client);
      const lane = this.#paces.isSlow(client) ? "slow" : "quick";
      const proof = this.#queue.find(digest) ?? this.#queue.add(digest, grammar, client, lane);
      const asker: Asker = { client, resolve, reject };
      signal.addEventListener("abort", () => this.#leave(asker, abandoned()));
      proof.askers.add(asker);
      this.#askers.set(asker, proof);
      this.#shares.add(client);
      // Displaced requests are removed only after the new request has been added. In the other order, a grammar for
      // which only displaced requests wait would be abandoned.
      for (const one of displaced) this.#leave(one, displacedAsker());
      this.#startNext();
    });
  }

  /** Checks a thread that has been compiling for `busyMs`. */
  look(thread: GrammarThread, task: number, busyMs: number): void {
    const { compileLimitMs } = this.#options;
    if (busyMs >= compileLimitMs) thread.refuse(task, compileLimitMs);
    else if (busyMs >= abandonedCompileMs) this.#lookQuick(thread, busyMs);
  }

  #lookQuick(thread: GrammarThread, busyMs: number): void {
    if (busyMs >= slowCompileMs && !thread.isLow) thread.giveWay();
    for (const proof of this.#running.quick) {
      if (proof.thread !== thread) continue;
      if (busyMs >= slowCompileMs || proof.askers.size === 0) this.#turnSlow(proof);
    }
  }

  /** Rejects all waiting requests. The caller must end the threads. */
  close(reason: ServerError): void {
    for (const lane of lanes) {
      for (let next = this.#queue.take(lane); next !== undefined; next = this.#queue.take(lane))
        this.#end(next, reason);
    }
  }

  /**
   * Returns the waiting requests that a new request of `client` displaces from the queue. Throws `queue_full` if none
   * can be displaced.
   */
  #displacedBy(client: string): readonly Asker[] {
    const free = this.#options.maxAskers - this.#askers.size;
    const displaced = this.#shares.displacedBy(client, 1, free, (other) => this.#newestOf(other));
    if (displaced === null) throw tooManyWait("requests for grammars");
    return displaced;
  }

  *#newestOf(client: string): Generator<readonly Asker[]> {
    for (const asker of [...this.#askers.keys()].reverse()) if (asker.client === client) yield [asker];
  }

  /** Removes a waiting request that was cancelled or displaced. Does nothing if its promise has been settled. */
  #leave(asker: Asker, reason: ServerError): void {
    const proof = this.#forget(asker);
    if (proof === undefined) return;
    proof.askers.delete(asker);
    asker.reject(reason);
    const [other] = proof.askers;
    if (other === undefined) this.#abandon(proof);
    else if (other.client !== proof.client) this.#queue.handOver(proof, other.client);
  }

  /**
   * Drops a grammar for which no request waits. A compilation in the quick lane continues for a while, because it may
   * end before another thread could start.
   */
  #abandon(proof: Proof): void {
    if (proof.thread !== null && proof.lane === "quick") return;
    this.#queue.remove(proof);
    proof.thread?.end(abandoned());
  }

  #startNext(): void {
    for (const lane of lanes) {
      const next = this.#running[lane].size === 0 ? this.#queue.take(lane) : undefined;
      if (next !== undefined) void this.#run(next);
    }
    const [running, second] = this.#running.quick;
    const isStrangers = running !== undefined && second === undefined && !this.#paces.isTrusted(running.client);
    const trusted = isStrangers ? this.#queue.takeTrusted(this.#paces) : undefined;
    if (trusted !== undefined) void this.#run(trusted);
  }

  async #run(proof: Proof): Promise<void> {
    const { pool, onProved } = this.#options;
    this.#running[proof.lane].add(proof);
    try {
      const thread = pool.claim();
      thread.isProving = true;
      proof.thread = thread;
      const compileMs = await thread.compile(proof);
      if (proof.lane === "quick") this.#paces.quick(proof.client, compileMs);
      const { id, source, digest } = proof;
      this.#end(proof, onProved({ id, source, digest, compileMs }));
    } catch (error) {
      this.#fail(proof, error as ServerError);
    }
    if (proof.thread !== null) proof.thread.isProving = false;
    proof.thread = null;
    this.#running[proof.lane].delete(proof);
    if (proof.isPutBack) this.#putBack(proof);
    // Lets the waiting requests continue first, so that the matchers that they open are placed on this thread.
    setImmediate(() => this.#startNext());
  }

  /**
   * Moves a compilation to the slow lane. If the slow lane is free, the compilation continues there;
   * otherwise it is stopped and waits.
   */
  #turnSlow(proof: Proof): void {
    this.#paces.slow(proof.client);
    this.#queue.moveToSlow(proof.client);
    if (proof.askers.size === 0 || this.#running.slow.size > 0) {
      proof.isPutBack = true;
      proof.thread?.end(abandoned());
      return;
    }
    this.#running.quick.delete(proof);
    this.#running.slow.add(proof);
    proof.lane = "slow";
    this.#startNext();
  }

  #putBack(proof: Proof): void {
    proof.isPutBack = false;
    if (proof.askers.size > 0) this.#queue.putBack(proof);
    else this.#queue.remove(proof);
  }

  #fail(proof: Proof, error: ServerError): void {
    if (proof.isPutBack) return;
    // The time of a failed compilation is unknown and may have been long, so it counts as slow.
    if (proof.lane === "quick") this.#paces.quick(proof.client, slowCompileMs);
    if (error.code === "invalid_value") this.#options.onRefused(proof.digest, error);
    this.#end(proof, error);
  }

  #end(proof: Proof, result: CompiledGrammar | ServerError): void {
    this.#queue.remove(proof);
    for (const asker of proof.askers) {
      this.#forget(asker);
      if ("open" in result) asker.resolve(result);
      else asker.reject(result);
    }
    proof.askers.clear();
  }

  #forget(asker: Asker): Proof | undefined {
    const proof = this.#askers.get(asker);
    if (this.#askers.delete(asker)) this.#shares.remove(asker.client);
    return proof;
  }
}
