// Last responses: for each WebSocket connection, its last response if this is not stored, so that the connection's next request
// can continue it. The response is dropped when the next request begins or the connection closes.
import type { ItemTexts } from "../../../actors/api/stored-responses.ts";
import type { RequestSocket } from "../../server/edge.ts";
import { type AnswerLease, AnswerMemory } from "../../shared/answer/answer-memory.ts";

/** Maximum total bytes of the conversations that are kept. One client may use half of them. */
const MAX_BYTES = 256 * 2 ** 20;

/** Last response of one connection, with the lease that counts its memory. */
interface Kept {
  response: LastResponse | null;
  lease: AnswerLease | null;
}

/** Response id, and the conversation up to and including the response. */
export interface LastResponse {
  readonly id: string;
  readonly items: readonly ItemTexts[];
}

export class LastResponses {
  readonly #memory = new AnswerMemory(MAX_BYTES);
  readonly #kept = new WeakMap<RequestSocket, Kept>();

  /** Keeps a response for the next request. If the memory limit is exceeded, the response is not kept and cannot be continued. */
  keep(socket: RequestSocket, client: string, response: LastResponse): void {
    if (socket.closed.aborted) return;
    const lease = this.#memory.lease(client);
    try {
      lease.add(response.items.reduce((sum, { texts }) => sum + texts.byteLength, 0));
    } catch {
      lease.release();
      return;
    }
    const kept = this.#keptFor(socket);
    kept.response = response;
    kept.lease = lease;
  }

  /** Removes and returns the last response of a connection; null if there is none. */
  take(socket: RequestSocket): LastResponse | null {
    const kept = this.#kept.get(socket);
    if (kept === undefined) return null;
    const { response } = kept;
    kept.lease?.release();
    kept.lease = null;
    kept.response = null;
    return response;
  }

  #keptFor(socket: RequestSocket): Kept {
    const earlier = this.#kept.get(socket);
    if (earlier !== undefined) return earlier;
    const kept = { response: null, lease: null };
    this.#kept.set(socket, kept);
    socket.closed.addEventListener("abort", () => this.take(socket), { once: true });
    return kept;
  }
}
