// Owns the model actor: turns messages into calls on the intake and the step loop, and each link that asks into a consumer
// of tokens.
import type { ActorContext, Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { type ModelProtocol, type TokenFrame, tokenChannel } from "../messages.ts";
import type { RequestPreparation } from "./request-preparation.ts";
import type { StepLoop, Subscriber } from "./step/step-loop.ts";

export function modelActor(loop: StepLoop, intake: RequestPreparation): Behaviour<ModelProtocol> {
  const consumers = new Map<Endpoint, Subscriber>();

  /** The consumer behind a link. Its sequences end with the link. */
  function consumerOf({ sender }: ActorContext): Subscriber {
    if (!sender) throw new Error("the model actor is asked over links only: its frames need one to travel on");
    const known = consumers.get(sender);
    if (known) return known;
    const consumer: Subscriber = { send: (frame: TokenFrame) => sender.send(tokenChannel, frame) };
    consumers.set(sender, consumer);
    void sender.exit.then(() => {
      intake.drop(consumer);
      consumers.delete(sender);
    });
    return consumer;
  }

  return {
    generate: ({ jobs }, context) => {
      const queued = intake.submit(consumerOf(context), jobs);
      return queued && new DeferredReply(queued);
    },
    pool: (message, context) => new DeferredReply(loop.pool(consumerOf(context), message)),
    cancel: ({ ids, how }, context) => intake.cancel(consumerOf(context), ids, how),
    statistics: () => loop.snapshot(),
    loadAdapter: (adapter) => new DeferredReply(loop.adapters.load(adapter)),
    unloadAdapter: ({ id }) => new DeferredReply(loop.adapters.unload(id)),
    setPaused: ({ ids, paused }, context) => loop.setPaused(consumerOf(context), ids, paused),
  };
}
