// Model actor: translates messages into calls of the request preparation and the step loop. Each connection that sends
// messages becomes a subscriber that receives tokens.

import type { LoadedModel } from "../../engines/engine.ts";
import type { ModelImages } from "../../engines/vision/model-images.ts";
import type { ActorContext, Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { ServerError } from "../../runtime/errors.ts";
import { type ModelProtocol, type SequenceJob, type TokenFrame, tokenChannel } from "../messages.ts";
import { calibrationStatus, calibrationSums, startCalibration } from "./calibration.ts";
import type { RequestPreparation } from "./request-preparation.ts";
import type { StepLoop, Subscriber } from "./step/step-loop.ts";

export interface ModelActorParts {
  readonly model: LoadedModel;
  readonly loop: StepLoop;
  readonly preparation: RequestPreparation;
  /** Images of the model; null or absent: it takes none. */
  readonly images?: ModelImages | null;
}

export function modelActor({ model, loop, preparation, images = null }: ModelActorParts): Behaviour<ModelProtocol> {
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
      images?.drop(subscriber);
      subscribers.delete(sender);
    });
    return subscriber;
  }

  /** Adds the embeddings of images to the jobs. */
  function withSpans(subscriber: Subscriber, jobs: readonly SequenceJob[]): readonly SequenceJob[] {
    if (images === null || jobs.every((job) => job.images === undefined)) return jobs;
    return jobs.map((job) =>
      job.images ? { ...job, spans: images.spans(subscriber, job.images.hold, job.images.tiles) } : job,
    );
  }

  return {
    generate: ({ jobs }, context) => {
      const subscriber = subscriberOf(context);
      const queued = preparation.submit(subscriber, withSpans(subscriber, jobs));
      return queued && new DeferredReply(queued);
    },
    prepareImages: ({ hold, images: encoded, client }, context) => {
      if (images === null) throw new ServerError("unsupported", "this model takes no images", { param: "messages" });
      return new DeferredReply(images.prepare(subscriberOf(context), hold, encoded, client));
    },
    releaseImages: ({ hold }, context) => images?.release(subscriberOf(context), hold),
    pool: (message, context) => new DeferredReply(loop.pool(subscriberOf(context), message)),
    cancel: ({ ids, how }, context) => preparation.cancel(subscriberOf(context), ids, how),
    statistics: () => ({ ...loop.snapshot(), ...(images && { encoderCache: { ...images.statistics } }) }),
    startCalibration: () => startCalibration(model),
    calibrationStatus: () => calibrationStatus(model),
    calibrationSums: () => calibrationSums(model),
    loadAdapter: (adapter) => new DeferredReply(loop.adapters.load(adapter)),
    unloadAdapter: ({ id }) => new DeferredReply(loop.adapters.unload(id)),
    setPaused: ({ ids, paused }, context) => loop.setPaused(subscriberOf(context), ids, paused),
  };
}
