// Owns the actor traffic over one endpoint: asks as comlink calls in both directions, tells as plain messages. Created by
// system.ts, one per endpoint. Comlink knows neither time nor death: both are this file's and ref.ts's business.
import {
  type Endpoint as ComlinkEndpoint,
  type Remote as ComlinkRemote,
  expose,
  releaseProxy,
  transfer,
  wrap,
} from "comlink";
import { type Endpoint, goneError, type PeerExit, type Transferable } from "../endpoint/endpoint.ts";
import { ServerError } from "../errors.ts";
import type { Message } from "./actor.ts";
import { failure, type Reply, type ReplyCallback, type Route } from "./ref.ts";

/** Most asks that wait for one peer's answers. */
const unansweredLimit = 4096;

const askChannel = "ask";
const replyChannel = "reply";
const tellChannel = "tell";

type Tell = readonly [actor: string, method: string, message: unknown];

/** What each side exposes to the other. */
interface Remote {
  deliver(actor: string, method: string, message: unknown): Promise<Reply>;
}

export class RemoteRoute implements Route {
  readonly #endpoint: Endpoint;
  readonly #deliver: ComlinkRemote<Remote["deliver"]>;
  readonly #unanswered = new Set<ReplyCallback>();
  #exit: PeerExit | null = null;

  constructor(endpoint: Endpoint, post: (actor: string, letter: Message) => void) {
    this.#endpoint = endpoint;
    const local: Remote = {
      deliver: (actor, method, message) =>
        new Promise((resolve) => {
          const settle: ReplyCallback = (envelope, moved = []) =>
            resolve(moved.length === 0 ? envelope : transfer(envelope, [...moved]));
          post(actor, { method, message, sender: endpoint, settle });
        }),
    };
    expose(local, channelPair(endpoint, replyChannel, askChannel));
    // Kept for the link's life: when comlink's last proxy is collected it tells the peer to stop listening.
    this.#deliver = wrap<Remote>(channelPair(endpoint, askChannel, replyChannel)).deliver;
    endpoint.receive(tellChannel, ([actor, method, message]: Tell) => {
      post(actor, { method, message, sender: endpoint, settle: null });
    });
    endpoint.exit.then((exit) => this.#peerGone(exit));
  }

  ask(actor: string, method: string, message: unknown, moved: readonly Transferable[], settle: ReplyCallback): void {
    if (this.#exit !== null) {
      settle(failure(goneError(this.#endpoint.peer, this.#exit)));
    } else if (this.#unanswered.size >= unansweredLimit) {
      const text = `${unansweredLimit} asks already wait for answers from "${this.#endpoint.peer}"; try again later`;
      settle(failure(new ServerError("mailbox_full", text)));
    } else {
      // An ask that has timed out stays counted until its answer comes or the peer goes: the peer still works on it.
      this.#unanswered.add(settle);
      const argument = moved.length === 0 ? message : transfer(message, [...moved]);
      this.#deliver(actor, method, argument).then(
        (envelope) => this.#answered(settle, envelope),
        (thrown) => this.#answered(settle, failure(thrown)),
      );
    }
  }

  tell(actor: string, method: string, message: unknown, moved?: readonly Transferable[]): void {
    this.#endpoint.send(tellChannel, [actor, method, message] satisfies Tell, moved);
  }

  #answered(settle: ReplyCallback, envelope: Reply): void {
    if (this.#unanswered.delete(settle)) settle(envelope);
  }

  #peerGone(exit: PeerExit): void {
    this.#exit = exit;
    const envelope = failure(goneError(this.#endpoint.peer, exit));
    for (const settle of this.#unanswered) settle(envelope);
    this.#unanswered.clear();
    // Until its proxies are released, comlink's registry keeps the endpoint, and with it this route, for ever.
    this.#deliver[releaseProxy]();
  }
}

/** An endpoint as comlink sees one: what it posts leaves on one channel, what it hears comes by the other. */
function channelPair(endpoint: Endpoint, sendChannel: string, receiveChannel: string): ComlinkEndpoint {
  return {
    postMessage: (message: unknown, moved?: Transferable[]) => {
      endpoint.send(sendChannel, message, moved);
    },
    addEventListener: (_type: string, listener: (event: { data: unknown }) => void) => {
      endpoint.receive(receiveChannel, (data: unknown) => listener({ data }));
    },
    removeEventListener: () => {},
  } as ComlinkEndpoint;
}
