// Owns the model actor: turns messages into calls on the intake and the step loop, and each link that asks into a consumer
// of tokens.
import type { ActorContext, Behaviour } from "../../runtime/actor/behaviour.ts";
import { Later } from "../../runtime/actor/later.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { type ModelProtocol, type TokenFrame, tokenChannel } from "../messages.ts";
import type { Intake } from "./intake.ts";
import type { Consumer, StepLoop } from "./step/step-loop.ts";

export function modelActor(loop: StepLoop, intake: Intake): Behaviour<ModelProtocol> {
  const consumers = new Map<Endpoint, Consumer>();

  /** The consumer behind a link. Its sequences end with the link. */
  function consumerOf({ sender }: ActorContext): Consumer {
    if (!sender) throw new Error("the model actor is asked over links only: its frames need one to travel on");
    const known = consumers.get(sender);
    if (known) return known;
    const consumer: Consumer = { send: (frame: TokenFrame) => sender.send(tokenChannel, frame) };
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
      return queued && new Later(queued);
    },
    pool: (message, context) => new Later(loop.pool(consumerOf(context), message)),
    cancel: ({ ids, how }, context) => intake.cancel(consumerOf(context), ids, how),
    statistics: () => loop.snapshot(),
    loadAdapter: (adapter) => new Later(loop.adapters.load(adapter)),
    unloadAdapter: ({ id }) => new Later(loop.adapters.unload(id)),
    setPaused: ({ ids, paused }, context) => loop.setPaused(consumerOf(context), ids, paused),
  };
}
