// Model actor: translates messages into calls of the request preparation and the step loop. Each connection that sends
// messages becomes a subscriber that receives tokens.

import type { LoadedModel } from "../../engines/engine.ts";
import type { ActorContext, Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { type ModelProtocol, type TokenFrame, tokenChannel } from "../messages.ts";
import { calibrationStatus, calibrationSums, startCalibration } from "./calibration.ts";
import type { RequestPreparation } from "./request-preparation.ts";
import type { StepLoop, Subscriber } from "./step/step-loop.ts";

export interface ModelActorParts {
  readonly model: LoadedModel;
  readonly loop: StepLoop;
  readonly preparation: RequestPreparation;
}

export function modelActor({ model, loop, preparation }: ModelActorParts): Behaviour<ModelProtocol> {
  const subscribers = new Map<Endpoint, Subscriber>();

  /** Returns the subscriber of the sender's connection. When the connection ends, its sequences are cancelled. */
  function subscriberOf({ sender }: ActorContext): Subscriber {
    if (!sender) throw new Error("the model actor expects messages over links: its frames are sent back over the link");
    const known = subscribers.get(sender);
    if (known) return known;
    const subscriber: Subscriber = { send: (frame: TokenFrame) => sender.send(tokenChannel, frame) };
    subscribers.set(sender, subscriber);
    void sender.exit.then(() => {
      preparation.drop(subscriber);
      subscribers.delete(sender);
    });
    return subscriber;
  }

  return {
    generate: ({ jobs }, context) => {
      const queued = preparation.submit(subscriberOf(context), jobs);
      return queued && new DeferredReply(queued);
    },
    pool: (message, context) => new DeferredReply(loop.pool(subscriberOf(context), message)),
    cancel: ({ ids, how }, context) => preparation.cancel(subscriberOf(context), ids, how),
    statistics: () => loop.snapshot(),
    startCalibration: () => startCalibration(model),
    calibrationStatus: () => calibrationStatus(model),
    calibrationSums: () => calibrationSums(model),
    loadAdapter: (adapter) => new DeferredReply(loop.adapters.load(adapter)),
    unloadAdapter: ({ id }) => new DeferredReply(loop.adapters.unload(id)),
    setPaused: ({ ids, paused }, context) => loop.setPaused(subscriberOf(context), ids, paused),
  };
}
