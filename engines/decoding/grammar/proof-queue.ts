// Proof queue: grammars that wait for their first compilation or are being compiled (by proofs.ts). Clients take turns.
// Grammars that compile slowly wait in a separate queue, the slow lane. After a slow grammar, all grammars of the same
// client wait in the slow lane for a while. The total number of characters of the grammars is limited. The number of
// grammars needs no limit, because the number of waiting requests is limited.

import { ServerError } from "../../../runtime/errors.ts";
import type { ClientPaces } from "../../../runtime/queues/client-paces.ts";
import { FairQueue } from "../../../runtime/queues/fair-queue.ts";
import type { GrammarSource } from "../../grammar-source.ts";
import type { CompiledGrammar } from "./matcher.ts";
import type { NumberedSource } from "./thread/messages.ts";
import type { GrammarThread } from "./thread.ts";

/**
 * Maximum total characters of waiting grammars. A grammar is rejected if its client would then have more characters
 * than remain free for other clients.
 */
const maxCharacters = 64 * 2 ** 20;
/** Value of the Retry-After header in seconds if the queue is full. */
const retryAfterSeconds = 5;

export type Lane = "quick" | "slow";

export interface Asker {
  readonly client: string;
  resolve(grammar: CompiledGrammar): void;
  reject(error: unknown): void;
}

export interface Proof extends NumberedSource {
  readonly digest: string;
  /** Client in whose turn the grammar is compiled: the client of one of the waiting requests. Clients take turns. */
  client: string;
  readonly askers: Set<Asker>;
  lane: Lane;
  /** The thread that compiles the grammar; null while the grammar waits. */
  thread: GrammarThread | null;
  /**
   * Whether the compilation was stopped because it is slow. It is repeated from the beginning when the slow lane is
   * free.
   */
  isPutBack: boolean;
}

export class ProofQueue {
  /** All grammars that wait or are being compiled, by digest. */
  readonly #byDigest = new Map<string, Proof>();
  readonly #waiting: Readonly<Record<Lane, FairQueue<Proof>>> = { quick: new FairQueue(), slow: new FairQueue() };
  /** Total number of characters of the grammars in the queue, by client and for all clients. */
  readonly #charactersOf = new Map<string, number>();
  #characters = 0;

  find(digest: string): Proof | undefined {
    return this.#byDigest.get(digest);
  }

  /** Adds a grammar. Throws `queue_full` if there is no room. */
  add(digest: string, { id, source }: NumberedSource, client: string, lane: Lane): Proof {
    this.#charge(client, source);
    const proof: Proof = { digest, source, id, client, askers: new Set(), lane, thread: null, isPutBack: false };
    this.#byDigest.set(digest, proof);
    this.#waiting[lane].add(proof, false);
    return proof;
  }

  take(lane: Lane): Proof | undefined {
    return this.#waiting[lane].take();
  }

  /**
   * Takes the next grammar of a trusted client (a client whose recent grammars were quick) from the quick lane. `paces`
   * knows which clients are trusted.
   */
  takeTrusted(paces: ClientPaces): Proof | undefined {
    return paces.takeTrusted(this.#waiting.quick);
  }

  /** Moves all waiting grammars of a client to the slow lane, because one of its grammars was slow. */
  moveToSlow(client: string): void {
    const { quick, slow } = this.#waiting;
    for (const proof of [...quick.newestOf(client)].reverse()) {
      quick.remove(proof);
      proof.lane = "slow";
      slow.add(proof, false);
    }
  }

  /** Puts a grammar into the slow lane, before all other grammars of its client. */
  putBack(proof: Proof): void {
    proof.lane = "slow";
    this.#waiting.slow.putBack(proof);
  }

  /**
   * Moves the grammar to another client. It is then compiled in that client's turn, and its characters count for that
   * client.
   */
  handOver(proof: Proof, client: string): void {
    const isWaiting = proof.thread === null;
    if (isWaiting) this.#waiting[proof.lane].remove(proof);
    this.#add(proof.client, -proof.source.grammar.length);
    this.#add(client, proof.source.grammar.length);
    proof.client = client;
    if (isWaiting) this.#waiting[proof.lane].add(proof, false);
  }

  /** Removes a grammar that has been compiled, rejected or abandoned. The same grammar may be added again later. */
  remove(proof: Proof): void {
    this.#waiting[proof.lane].remove(proof);
    if (this.#byDigest.get(proof.digest) !== proof) return;
    this.#byDigest.delete(proof.digest);
    this.#add(proof.client, -proof.source.grammar.length);
  }

  /**
   * Counts the characters of a new grammar. Throws `queue_full` if the client would then have more characters than
   * remain free.
   */
  #charge(client: string, { grammar }: GrammarSource): void {
    const ofClient = (this.#charactersOf.get(client) ?? 0) + grammar.length;
    if (ofClient > maxCharacters - this.#characters - grammar.length) throw tooManyWait("characters of grammars");
    this.#add(client, grammar.length);
  }

  #add(client: string, change: number): void {
    const ofClient = (this.#charactersOf.get(client) ?? 0) + change;
    this.#characters += change;
    if (ofClient === 0) this.#charactersOf.delete(client);
    else this.#charactersOf.set(client, ofClient);
  }
}

export function tooManyWait(what: string): ServerError {
  const message = `too many ${what} are waiting to be compiled; try again later`;
  return new ServerError("queue_full", message, { retryAfterSeconds });
}

/**
 * Creates the error of a displaced request: its client had the most waiting requests, so a request of another client
 * took its place in the queue.
 */
export function displacedAsker(): ServerError {
  const message =
    "too many requests wait for grammars, most of them from this client: a request of another client took the " +
    "place of this one; try again later";
  return new ServerError("queue_full", message, { retryAfterSeconds });
}
