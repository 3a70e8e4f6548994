// Proofs: the first compilation of each grammar. It may abort, hang or fill memory and end its thread, so it runs on a
// thread without matchers, one grammar at a time. A slow one continues in a lane of its own, one at a time, while quick
// ones run beside it. A trusted client does not wait for quick grammars of other clients. A grammar without waiting
// requests is not compiled. Places of askers are shared by client.

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
  /** Most requests that wait for a grammar; several may wait for the same. */
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
  /** All askers, the latest at the end. */
  readonly #askers = new Map<Asker, Proof>();
  readonly #shares = new QueueShares();

  constructor(options: ProofsOptions) {
    this.#options = options;
  }

  /** The id of `grammar` must be new. Rejects as GrammarHost.compile() does. */
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
      // After it has joined them: they may have been the only askers of the same grammar.
      for (const one of displaced) this.#leave(one, displacedAsker());
      this.#startNext();
    });
  }

  /** A thread has compiled for this time. */
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

  /** Rejects all waiting requests; the caller ends the threads. */
  close(reason: ServerError): void {
    for (const lane of lanes) {
      for (let next = this.#queue.take(lane); next !== undefined; next = this.#queue.take(lane))
        this.#end(next, reason);
    }
  }

  /** The requests whose places another asker of a client takes. Throws `queue_full`. */
  #displacedBy(client: string): readonly Asker[] {
    const free = this.#options.maxAskers - this.#askers.size;
    const displaced = this.#shares.displacedBy(client, 1, free, (other) => this.#newestOf(other));
    if (displaced === null) throw tooManyWait("requests for grammars");
    return displaced;
  }

  *#newestOf(client: string): Generator<readonly Asker[]> {
    for (const asker of [...this.#askers.keys()].reverse()) if (asker.client === client) yield [asker];
  }

  /** Removes an asker that has left or is displaced, unless it has been settled. */
  #leave(asker: Asker, reason: ServerError): void {
    const proof = this.#forget(asker);
    if (proof === undefined) return;
    proof.askers.delete(asker);
    asker.reject(reason);
    const [other] = proof.askers;
    if (other === undefined) this.#abandon(proof);
    else if (other.client !== proof.client) this.#queue.handOver(proof, other.client);
  }

  /** A compilation in the quick lane continues for a while: it may end before another thread would start. */
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
    // The askers go first: a matcher that they open at once stays on this thread.
    setImmediate(() => this.#startNext());
  }

  /** Continues as the slow one if there is none; otherwise it waits for the slow lane. */
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
    // Its time is not known: it may have been long.
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
