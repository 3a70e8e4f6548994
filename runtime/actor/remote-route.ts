// Remote route: delivers messages to the actors of a peer over one endpoint. Asks (messages with a reply) are comlink calls, in
// both directions; tells (messages without a reply) are plain messages. system.ts creates one route per endpoint. The route
// adds what comlink lacks: a limit on unanswered asks, and errors when the peer is gone. Timeouts are in ref.ts.
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

/** Maximum number of unanswered asks to one peer. */
const unansweredLimit = 4096;

const askChannel = "ask";
const replyChannel = "reply";
const tellChannel = "tell";

type Tell = readonly [actor: string, method: string, message: unknown];

/** Interface that each of the two peers exposes to the other. */
interface Remote {
  deliver(actor: string, method: string, message: unknown): Promise<Reply>;
}

export class RemoteRoute implements Route {
  readonly #endpoint: Endpoint;
  readonly #deliver: ComlinkRemote<Remote["deliver"]>;
  readonly #unanswered = new Set<ReplyCallback>();
  #exit: PeerExit | null = null;

  constructor(endpoint: Endpoint, post: (actor: string, message: Message) => void) {
    this.#endpoint = endpoint;
    const local: Remote = {
      deliver: (actor, method, content) =>
        new Promise((resolve) => {
          const onReply: ReplyCallback = (reply, moved = []) =>
            resolve(moved.length === 0 ? reply : transfer(reply, [...moved]));
          post(actor, { method, content, sender: endpoint, onReply });
        }),
    };
    expose(local, channelPair(endpoint, replyChannel, askChannel));
    // The proxy is kept as long as the endpoint exists. If it were garbage-collected, comlink would
    // tell the peer to stop listening.
    this.#deliver = wrap<Remote>(channelPair(endpoint, askChannel, replyChannel)).deliver;
    endpoint.receive(tellChannel, ([actor, method, content]: Tell) => {
      post(actor, { method, content, sender: endpoint, onReply: null });
    });
    endpoint.exit.then((exit) => this.#peerGone(exit));
  }

  ask(actor: string, method: string, message: unknown, moved: readonly Transferable[], onReply: ReplyCallback): void {
    if (this.#exit !== null) {
      onReply(failure(goneError(this.#endpoint.peer, this.#exit)));
    } else if (this.#unanswered.size >= unansweredLimit) {
      const text = `${unansweredLimit} asks already wait for replies from "${this.#endpoint.peer}"; try again later`;
      onReply(failure(new ServerError("mailbox_full", text)));
    } else {
      // A timed-out ask counts as unanswered until its reply arrives or the peer is gone, because the
      // peer is still processing the ask.
      this.#unanswered.add(onReply);
      const argument = moved.length === 0 ? message : transfer(message, [...moved]);
      this.#deliver(actor, method, argument).then(
        (reply) => this.#answered(onReply, reply),
        (thrown) => this.#answered(onReply, failure(thrown)),
      );
    }
  }

  tell(actor: string, method: string, message: unknown, moved?: readonly Transferable[]): void {
    this.#endpoint.send(tellChannel, [actor, method, message] satisfies Tell, moved);
  }

  #answered(onReply: ReplyCallback, reply: Reply): void {
    if (this.#unanswered.delete(onReply)) onReply(reply);
  }

  #peerGone(exit: PeerExit): void {
    this.#exit = exit;
    const reply = failure(goneError(this.#endpoint.peer, exit));
    for (const onReply of this.#unanswered) onReply(reply);
    this.#unanswered.clear();
    // Release the proxy, because otherwise comlink's registry would keep the endpoint and this route in memory.
    this.#deliver[releaseProxy]();
  }
}

/** Returns an endpoint in comlink's form. It sends on one channel and receives on the other. */
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
