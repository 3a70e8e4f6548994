// Owns the model actor: turns messages into calls on the intake and the step loop, and each link that asks into a subscriber
// of tokens.
import type { ActorContext, Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { type ModelProtocol, type TokenFrame, tokenChannel } from "../messages.ts";
import type { RequestPreparation } from "./request-preparation.ts";
import type { StepLoop, Subscriber } from "./step/step-loop.ts";

export function modelActor(loop: StepLoop, intake: RequestPreparation): Behaviour<ModelProtocol> {
  const subscribers = new Map<Endpoint, Subscriber>();

  /** The subscriber behind a link. Its sequences end with the link. */
  function subscriberOf({ sender }: ActorContext): Subscriber {
    if (!sender) throw new Error("the model actor is asked over links only: its frames need one to travel on");
    const known = subscribers.get(sender);
    if (known) return known;
    const subscriber: Subscriber = { send: (frame: TokenFrame) => sender.send(tokenChannel, frame) };
    subscribers.set(sender, subscriber);
    void sender.exit.then(() => {
      intake.drop(subscriber);
      subscribers.delete(sender);
    });
    return subscriber;
  }

  return {
    generate: ({ jobs }, context) => {
      const queued = intake.submit(subscriberOf(context), jobs);
      return queued && new DeferredReply(queued);
    },
    pool: (message, context) => new DeferredReply(loop.pool(subscriberOf(context), message)),
    cancel: ({ ids, how }, context) => intake.cancel(subscriberOf(context), ids, how),
    statistics: () => loop.snapshot(),
    loadAdapter: (adapter) => new DeferredReply(loop.adapters.load(adapter)),
    unloadAdapter: ({ id }) => new DeferredReply(loop.adapters.unload(id)),
    setPaused: ({ ids, paused }, context) => loop.setPaused(subscriberOf(context), ids, paused),
  };
}
