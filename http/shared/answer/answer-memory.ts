// Answer memory: limits the memory that requests use on this thread besides their bodies, in total and per client. Logprobs and
// embeddings count until the response is sent; the earlier conversation of a response counts until it is parsed.
import { ServerError } from "../../../runtime/errors.ts";

/** Maximum total bytes of logprobs, embeddings and earlier conversations for all responses in progress; half of it per client. */
export const MAX_ANSWER_BYTES = 256 * 2 ** 20;

export class AnswerMemory {
  readonly #maxBytes: number;
  #bytes = 0;
  readonly #bytesOfClients = new Map<string, number>();

  constructor(maxBytes: number = MAX_ANSWER_BYTES) {
    this.#maxBytes = maxBytes;
  }

  /** Number of bytes currently counted for all responses in progress. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Creates a lease that counts the memory of one response. The caller must release it. */
  lease(client: string): AnswerLease {
    return new AnswerLease((bytes) => this.#add(client, bytes));
  }

  #add(client: string, bytes: number): void {
    const ofClient = (this.#bytesOfClients.get(client) ?? 0) + bytes;
    if (bytes > 0) {
      this.#check(this.#bytes + bytes, this.#maxBytes, "all clients");
      this.#check(ofClient, this.#maxBytes / 2, "one client");
    }
    this.#bytes += bytes;
    if (ofClient === 0) this.#bytesOfClients.delete(client);
    else this.#bytesOfClients.set(client, ofClient);
  }

  #check(bytes: number, limit: number, whose: string): void {
    if (bytes <= limit) return;
    const text = `the answers in progress for ${whose} may hold ${limit} bytes of logprobs, embeddings and earlier conversations, and this one needs more; stream it where possible, or ask for fewer tokens, choices, top_logprobs or inputs`;
    throw new ServerError("queue_full", text);
  }
}

/**
 * Memory counted for one response. The lease is reference-counted: the memory stops counting when all holders have released it.
 */
export class AnswerLease {
  readonly #take: (bytes: number) => void;
  #bytes = 0;
  #users = 1;

  constructor(take: (bytes: number) => void) {
    this.#take = take;
  }

  /** Counts additional bytes. Throws queue_full if a limit is exceeded; bytes counted earlier stay counted. */
  add(bytes: number): void {
    this.#take(bytes);
    this.#bytes += bytes;
  }

  retain(): void {
    this.#users++;
  }

  release(): void {
    this.#users--;
    if (this.#users > 0) return;
    this.#take(-this.#bytes);
    this.#bytes = 0;
  }
}
