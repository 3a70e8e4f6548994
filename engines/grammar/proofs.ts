// The grammars that wait to be compiled for the first time. Compiling may abort, hang or fill memory, and takes its thread
// along, so it happens on a thread without matchers, one grammar at a time. Clients take turns. A grammar that turns out slow
// goes on in a lane of its own, where one is compiled at a time, and quick ones go on beside it. A grammar that nobody waits
// for any more is not compiled.
import { ServerError } from "../../runtime/errors.ts";
import { FairQueue } from "../../runtime/fair-queue.ts";
import { slowMs } from "./limits.ts";
import type { ProvedGrammar } from "./live-matcher.ts";
import type { CompiledGrammar, GrammarAsker } from "./matcher.ts";
import type { GrammarSource } from "./source.ts";
import type { GrammarThread, NumberedSource } from "./thread.ts";
import type { ThreadPool } from "./thread-pool.ts";

/** Requests that may wait for grammars to be compiled, in all and of one client. */
export const maxWaiting = 256;
export const maxWaitingOfClient = 64;
/** When one that is refused for want of room may come again. */
const retryAfterSeconds = 5;
/** A client whose grammar was slow has its next ones compiled in the slow lane for so long. */
const slowClientMs = 60_000;

type Lane = "quick" | "slow";

interface Asker {
  readonly client: string;
  resolve(grammar: CompiledGrammar): void;
  reject(error: unknown): void;
}

interface Proof extends NumberedSource {
  readonly digest: string;
  /** Whose turn it takes: one of those who wait for it. */
  client: string;
  readonly askers: Set<Asker>;
  lane: Lane;
  /** Where it is being compiled. */
  thread: GrammarThread | null;
  /** It is stopped, to be compiled from its beginning when the slow lane is free. */
  isPutBack: boolean;
}

export interface ProofsOptions {
  readonly pool: ThreadPool;
  readonly compileLimitMs: number;
  readonly onProved: (grammar: ProvedGrammar) => CompiledGrammar;
  readonly onRefused: (digest: string, error: ServerError) => void;
}

export class Proofs {
  readonly #options: ProofsOptions;
  /** Those that wait and those that are being compiled. */
  readonly #byDigest = new Map<string, Proof>();
  readonly #waiting: Readonly<Record<Lane, FairQueue<Proof>>> = { quick: new FairQueue(), slow: new FairQueue() };
  readonly #running: Record<Lane, Proof | null> = { quick: null, slow: null };
  /** How many requests wait, by client. */
  readonly #askers = new Map<string, number>();
  #askerCount = 0;
  /** Until when a client's grammars are taken to be slow; the one added last at the end. */
  readonly #slowUntilMs = new Map<string, number>();

  constructor(options: ProofsOptions) {
    this.#options = options;
  }

  /** `id` is the number of a grammar that nobody has asked for yet. */
  ask(digest: string, source: GrammarSource, id: number, { client, signal }: GrammarAsker): Promise<CompiledGrammar> {
    return new Promise((resolve, reject) => {
      if (signal.aborted) throw cancelled();
      this.#checkRoom(client);
      const proof = this.#byDigest.get(digest) ?? this.#add(digest, source, id, client);
      const leave = () => this.#leave(proof, asker);
      const settle = () => {
        signal.removeEventListener("abort", leave);
        this.#count(client, -1);
      };
      const asker: Asker = {
        client,
        resolve: (grammar) => {
          settle();
          resolve(grammar);
        },
        reject: (error) => {
          settle();
          reject(error);
        },
      };
      signal.addEventListener("abort", leave);
      proof.askers.add(asker);
      this.#count(client, 1);
      this.#startNext();
    });
  }

  /** A thread has been seen to compile for so long. */
  look(thread: GrammarThread, task: number, busyMs: number): void {
    const { quick } = this.#running;
    const { compileLimitMs } = this.#options;
    if (busyMs >= compileLimitMs) thread.refuse(task, compileLimitMs);
    else if (quick?.thread === thread && busyMs >= slowMs) this.#turnSlow(quick);
  }

  /** Rejects all that wait; the others' threads are to be ended. */
  close(reason: ServerError): void {
    for (const queue of Object.values(this.#waiting)) {
      for (let proof = queue.take(); proof !== undefined; proof = queue.take()) this.#end(proof, reason);
    }
  }

  #checkRoom(client: string): void {
    const own = this.#askers.get(client) ?? 0;
    const isFull = this.#askerCount >= maxWaiting;
    if (!isFull && own < maxWaitingOfClient) return;
    const whose = isFull ? `${maxWaiting} requests wait` : `${maxWaitingOfClient} requests of this client wait`;
    const message = `${whose} for their grammars to be compiled already; try again later`;
    throw new ServerError("queue_full", message, { retryAfterSeconds });
  }

  #count(client: string, change: number): void {
    const count = (this.#askers.get(client) ?? 0) + change;
    if (count === 0) this.#askers.delete(client);
    else this.#askers.set(client, count);
    this.#askerCount += change;
  }

  #add(digest: string, source: GrammarSource, id: number, client: string): Proof {
    const lane = this.#isSlow(client) ? "slow" : "quick";
    const proof: Proof = { digest, source, id, client, askers: new Set(), lane, thread: null, isPutBack: false };
    this.#byDigest.set(digest, proof);
    this.#waiting[lane].add(proof, false);
    return proof;
  }

  /** An asker does not want the grammar any more. One that is compiled quickly may be finished all the same. */
  #leave(proof: Proof, asker: Asker): void {
    proof.askers.delete(asker);
    asker.reject(cancelled());
    const [other] = proof.askers;
    if (other?.client === proof.client) return;
    if (proof.thread === null) this.#waiting[proof.lane].remove(proof);
    if (other === undefined) this.#abandon(proof);
    else if (proof.thread === null) {
      proof.client = other.client;
      this.#waiting[proof.lane].add(proof, false);
    }
  }

  #abandon(proof: Proof): void {
    if (proof.thread !== null && proof.lane === "quick") return;
    this.#forget(proof);
    proof.thread?.end(cancelled());
  }

  #startNext(): void {
    for (const lane of ["quick", "slow"] as const) {
      const next = this.#running[lane] === null ? this.#waiting[lane].take() : undefined;
      if (next !== undefined) void this.#run(next);
    }
  }

  async #run(proof: Proof): Promise<void> {
    const { pool, onProved } = this.#options;
    const thread = pool.claim();
    thread.isProving = true;
    proof.thread = thread;
    this.#running[proof.lane] = proof;
    pool.keepSpare();
    try {
      const compileMs = await thread.compile(proof);
      if (compileMs <= slowMs) this.#slowUntilMs.delete(proof.client);
      const { id, source, digest } = proof;
      this.#end(proof, onProved({ id, source, digest, compileMs }));
    } catch (error) {
      this.#fail(proof, error as ServerError);
    }
    thread.isProving = false;
    this.#running[proof.lane] = null;
    if (proof.isPutBack) this.#putBack(proof);
    this.#startNext();
    pool.keepSpare();
  }

  /** It goes on as the slow one, if there is none; else it has to wait for that. */
  #turnSlow(proof: Proof): void {
    this.#remember(proof.client);
    const isWanted = proof.askers.size > 0;
    if (isWanted && this.#running.slow === null) {
      this.#running.quick = null;
      this.#running.slow = proof;
      proof.lane = "slow";
      this.#startNext();
      this.#options.pool.keepSpare();
    } else {
      if (!isWanted) this.#forget(proof);
      proof.isPutBack = isWanted;
      proof.thread?.end(cancelled());
    }
  }

  #putBack(proof: Proof): void {
    proof.isPutBack = false;
    proof.thread = null;
    proof.lane = "slow";
    if (proof.askers.size > 0) this.#waiting.slow.putBack(proof);
    else this.#forget(proof);
  }

  #fail(proof: Proof, error: ServerError): void {
    if (proof.isPutBack) return;
    if (error.code === "invalid_value") this.#options.onRefused(proof.digest, error);
    this.#end(proof, error);
  }

  #end(proof: Proof, result: CompiledGrammar | ServerError): void {
    this.#forget(proof);
    for (const asker of proof.askers) {
      if (result instanceof ServerError) asker.reject(result);
      else asker.resolve(result);
    }
    proof.askers.clear();
  }

  /** Another one may be asked for meanwhile. */
  #forget(proof: Proof): void {
    if (this.#byDigest.get(proof.digest) === proof) this.#byDigest.delete(proof.digest);
  }

  #isSlow(client: string): boolean {
    return performance.now() < (this.#slowUntilMs.get(client) ?? 0);
  }

  #remember(client: string): void {
    this.#slowUntilMs.delete(client);
    this.#slowUntilMs.set(client, performance.now() + slowClientMs);
    const now = performance.now();
    for (const [known, untilMs] of this.#slowUntilMs) {
      if (untilMs > now) return;
      this.#slowUntilMs.delete(known);
    }
  }
}

function cancelled(): ServerError {
  return new ServerError("cancelled", "nobody waits for the grammar any more");
}
