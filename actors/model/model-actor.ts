// Model actor: translates messages into calls of the request preparation and the step loop. Each connection that sends messages
// becomes a subscriber, which receives tokens.

import type { LoadedModel } from "../../engines/engine.ts";
import type { ModelMedia } from "../../engines/media/model-media.ts";
import type { ActorContext, Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { ServerError } from "../../runtime/errors.ts";
import { completeJobs, type ModelProtocol, type SequenceJob, type TokenFrame, tokenChannel } from "../messages.ts";
import { calibrationStatus, calibrationSums, startCalibration } from "./calibration.ts";
import type { RequestPreparation } from "./request-preparation.ts";
import type { StepLoop, Subscriber } from "./step/step-loop.ts";

export interface ModelActorParts {
  readonly model: LoadedModel;
  readonly loop: StepLoop;
  readonly preparation: RequestPreparation;
  /** Encodes images and audio; null or absent = the model accepts only text. */
  readonly media?: ModelMedia | null;
}

export function modelActor({ model, loop, preparation, media = null }: ModelActorParts): Behaviour<ModelProtocol> {
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
      media?.drop(subscriber);
      subscribers.delete(sender);
    });
    return subscriber;
  }

  /** Adds the embeddings of images and audio to the jobs. */
  function withSpans(subscriber: Subscriber, jobs: readonly SequenceJob[]): readonly SequenceJob[] {
    if (media === null || jobs.every((job) => job.media === undefined)) return jobs;
    return jobs.map((job) =>
      job.media ? { ...job, spans: media.spans(subscriber, job.media.hold, job.media.tiles) } : job,
    );
  }

  return {
    generate: (message, context) => {
      const subscriber = subscriberOf(context);
      const queued = preparation.submit(subscriber, withSpans(subscriber, completeJobs(message)));
      return queued && new DeferredReply(queued);
    },
    prepareMedia: ({ hold, media: encoded, client }, context) => {
      if (media === null) {
        const message = "this model takes no images, videos or audio; send text only";
        throw new ServerError("unsupported", message, { param: "messages" });
      }
      return new DeferredReply(media.prepare(subscriberOf(context), hold, encoded, client));
    },
    releaseMedia: ({ hold }, context) => media?.release(subscriberOf(context), hold),
    pool: (message, context) => new DeferredReply(loop.pool(subscriberOf(context), message)),
    cancel: ({ ids, how }, context) => preparation.cancel(subscriberOf(context), ids, how),
    statistics: () => ({ ...loop.snapshot(), ...(media && { encoderCache: { ...media.statistics } }) }),
    startCalibration: () => startCalibration(model),
    calibrationStatus: () => calibrationStatus(model),
    calibrationSums: () => calibrationSums(model),
    loadAdapter: (adapter) => new DeferredReply(loop.adapters.load(adapter)),
    unloadAdapter: ({ id }) => new DeferredReply(loop.adapters.unload(id)),
    setPaused: ({ ids, paused }, context) => loop.setPaused(subscriberOf(context), ids, paused),
  };
}
