// Remote actor: the actor `model` of a remote model. It handles the same messages as the actor of a local model.
import { embedded } from "../../engines/remote/discover.ts";
import type { RemoteSettings } from "../../engines/remote/upstream.ts";
import type { ActorContext, Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { ServerError } from "../../runtime/errors.ts";
import { completeJobs, type ModelProtocol, type PoolJob, type TokenFrame, tokenChannel } from "../messages.ts";
import type { Subscriber } from "../model/sequence/generation-sequence.ts";
import type { Dispatcher } from "./dispatcher.ts";
import type { Upstream } from "./upstream.ts";

export function remoteActor(dispatcher: Dispatcher, settings: RemoteSettings): Behaviour<ModelProtocol> {
  const subscribers = new Map<Endpoint, Subscriber>();

  /** Returns the subscriber of the sender's connection. When the connection ends, its sequences are cancelled. */
  function subscriberOf({ sender }: ActorContext): Subscriber {
    if (!sender) throw new Error("the model actor expects messages over links: its frames are sent back over the link");
    const known = subscribers.get(sender);
    if (known) return known;
    const subscriber: Subscriber = { send: (frame: TokenFrame) => sender.send(tokenChannel, frame) };
    subscribers.set(sender, subscriber);
    void sender.exit.then(() => {
      dispatcher.drop(subscriber);
      subscribers.delete(sender);
    });
    return subscriber;
  }

  /** Prompt groups that are being embedded, by id. */
  const pools = new Map<number, AbortController>();
  const pool = async (id: number, job: PoolJob): Promise<Float32Array> => {
    const stop = new AbortController();
    pools.set(id, stop);
    const { signal } = stop;
    const task = async ({ connection, found }: Upstream) => {
      return await embedded(connection, found?.model.name ?? "", job.prompts, {
        timeoutMs: settings.firstTokenTimeoutMs,
        signal,
      });
    };
    return await dispatcher.run(job, task, signal).finally(() => pools.delete(id));
  };

  return {
    generate: (message, context) => dispatcher.submit(subscriberOf(context), completeJobs(message)),
    pool: ({ id, job }) => new DeferredReply(pool(id, job)),
    cancel: ({ ids, how }, context) => {
      for (const id of ids) pools.get(id)?.abort();
      dispatcher.cancel(subscriberOf(context), ids, how);
    },
    setPaused: ({ ids, paused }, context) => dispatcher.setPaused(subscriberOf(context), ids, paused),
    statistics: () => dispatcher.statistics(),
    prepareMedia: () => refuse("takes no images from here"),
    releaseMedia: () => {},
    startCalibration: () => refuse("has its weights there, so their inputs cannot be collected here"),
    calibrationStatus: () => {
      return { isCollecting: false, layers: 0, layersTracking: 0, totalRows: 0, minRows: 0, maxRows: 0 };
    },
    calibrationSums: () => [],
    loadAdapter: () => refuse("takes no adapters from here; load them there"),
    unloadAdapter: () => refuse("takes no adapters from here; load them there"),
  };
}

function refuse(what: string): never {
  throw new ServerError("unsupported", `a model on another server (engine = "remote") ${what}`);
}
