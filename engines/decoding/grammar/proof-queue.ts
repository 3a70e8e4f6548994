// Proof queue: grammars that wait for their first compilation or are being compiled. Clients take turns; slow grammars,
// and for a while all grammars of their clients, wait in the slow lane. The queue bounds their characters; their number
// is bounded by that of the askers. proofs.ts compiles them.

import { ServerError } from "../../../runtime/errors.ts";
import type { ClientPaces } from "../../../runtime/queues/client-paces.ts";
import { FairQueue } from "../../../runtime/queues/fair-queue.ts";
import type { GrammarSource } from "../../grammar-source.ts";
import type { CompiledGrammar } from "./matcher.ts";
import type { NumberedSource } from "./thread/messages.ts";
import type { GrammarThread } from "./thread.ts";

/** Total characters of waiting grammars. A client may have as many as it leaves free for others. */
const maxCharacters = 64 * 2 ** 20;
/** Retry-After if there is no room. */
const retryAfterSeconds = 5;

export type Lane = "quick" | "slow";

export interface Asker {
  readonly client: string;
  resolve(grammar: CompiledGrammar): void;
  reject(error: unknown): void;
}

export interface Proof extends NumberedSource {
  readonly digest: string;
  /** The client whose turn it uses: one of the askers. */
  client: string;
  readonly askers: Set<Asker>;
  lane: Lane;
  /** The thread that compiles it. */
  thread: GrammarThread | null;
  /** Stopped; it is compiled from the beginning when the slow lane is free. */
  isPutBack: boolean;
}

export class ProofQueue {
  /** Waiting grammars and grammars that are being compiled. */
  readonly #byDigest = new Map<string, Proof>();
  readonly #waiting: Readonly<Record<Lane, FairQueue<Proof>>> = { quick: new FairQueue(), slow: new FairQueue() };
  /** Characters of their grammars, by client and in total. */
  readonly #charactersOf = new Map<string, number>();
  #characters = 0;

  find(digest: string): Proof | undefined {
    return this.#byDigest.get(digest);
  }

  /** Throws `queue_full`. */
  add(digest: string, { id, source }: NumberedSource, client: string, lane: Lane): Proof {
    this.#charge(client, source);
    const proof: Proof = { digest, source, id, client, askers: new Set(), lane, thread: null, isPutBack: false };
    this.#byDigest.set(digest, proof);
    this.#waiting[lane].add(proof, false);
    return proof;
  }

  /** Takes the next grammar of a lane. */
  take(lane: Lane): Proof | undefined {
    return this.#waiting[lane].take();
  }

  /** Takes the next grammar of the quick lane whose client is trusted by `paces`. */
  takeTrusted(paces: ClientPaces): Proof | undefined {
    return paces.takeTrusted(this.#waiting.quick);
  }

  /** A client's grammar was slow: its other waiting grammars move to the slow lane. */
  moveToSlow(client: string): void {
    const { quick, slow } = this.#waiting;
    for (const proof of [...quick.newestOf(client)].reverse()) {
      quick.remove(proof);
      proof.lane = "slow";
      slow.add(proof, false);
    }
  }

  /** Puts it into the slow lane, ahead of all others of its client. */
  putBack(proof: Proof): void {
    proof.lane = "slow";
    this.#waiting.slow.putBack(proof);
  }

  /** It uses another client's turn from now on. */
  handOver(proof: Proof, client: string): void {
    const isWaiting = proof.thread === null;
    if (isWaiting) this.#waiting[proof.lane].remove(proof);
    this.#add(proof.client, -proof.source.grammar.length);
    this.#add(client, proof.source.grammar.length);
    proof.client = client;
    if (isWaiting) this.#waiting[proof.lane].add(proof, false);
  }

  /** It is compiled, refused or abandoned: it may be added again. */
  remove(proof: Proof): void {
    this.#waiting[proof.lane].remove(proof);
    if (this.#byDigest.get(proof.digest) !== proof) return;
    this.#byDigest.delete(proof.digest);
    this.#add(proof.client, -proof.source.grammar.length);
  }

  /** Throws `queue_full` if the client would have more characters than are left free. */
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
 * The error of a displaced request: its client has the most waiting requests, and another client's request takes the
 * place.
 */
export function displacedAsker(): ServerError {
  const message =
    "too many requests wait for grammars, most of them from this client: a request of another client took the " +
    "place of this one; try again later";
  return new ServerError("queue_full", message, { retryAfterSeconds });
}
