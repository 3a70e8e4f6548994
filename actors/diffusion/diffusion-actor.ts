// Diffusion actor: runs the calls of one diffusion model, one at a time. Waiting calls are served in turn across clients.
import type { DiffusionModel } from "../../engines/diffusion/diffusion.ts";
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { EventOutlet } from "../../runtime/actor/event-outlet.ts";
import { StreamHub } from "../../runtime/actor/stream.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { ImageGenerationEvent } from "../api/images/image-generation.ts";
import { type DiffusionLimits, type DiffusionProtocol, diffusionChannel, diffusionWindow } from "../messages.ts";
import { generateImages } from "./generate-images.ts";

export class DiffusionActor implements Behaviour<DiffusionProtocol> {
  readonly #model: DiffusionModel;
  readonly #limits: DiffusionLimits;
  readonly #hub: StreamHub;
  readonly #turns = new Gate(1);
  readonly #calls = new Map<AbortController, Promise<void>>();

  /** `front`: endpoint of the caller. */
  constructor(model: DiffusionModel, limits: DiffusionLimits, front: Endpoint) {
    this.#model = model;
    this.#limits = limits;
    this.#hub = new StreamHub(front, { channel: diffusionChannel, window: diffusionWindow });
  }

  readonly generate: Behaviour<DiffusionProtocol>["generate"] = ({ stream, request }) => {
    const ended = new AbortController();
    const { signal } = ended;
    const outlet = new EventOutlet<ImageGenerationEvent>(this.#hub, stream, () =>
      ended.abort(new ServerError("cancelled", "the request was cancelled")),
    );
    const send = (event: ImageGenerationEvent): Promise<void> => outlet.send(event);
    const refusal = this.#refusal();
    const run =
      refusal !== null
        ? Promise.reject(refusal)
        : this.#turns.pass(
            () => generateImages(this.#model, request, { limitMs: this.#limits.timeoutMs, signal, send }),
            request.client,
            signal,
          );
    const settled = run
      .catch((thrown: unknown) => {
        const error = toErrorRecord(signal.aborted ? signal.reason : thrown);
        outlet.sendLast({ type: "error", error });
      })
      .finally(() => {
        outlet.end();
        this.#calls.delete(ended);
      });
    this.#calls.set(ended, settled);
  };

  /** Aborts all calls. Resolves when no call uses the model any more. */
  async stop(): Promise<void> {
    const reason = new ServerError("draining", "the model is being stopped; send the request again");
    for (const ended of this.#calls.keys()) ended.abort(reason);
    await Promise.allSettled(this.#calls.values());
  }

  #refusal(): ServerError | null {
    const { maxQueue } = this.#limits;
    // One of the calls is running; at most maxQueue others wait.
    if (this.#calls.size <= maxQueue) return null;
    return new ServerError(
      "queue_full",
      `${maxQueue} requests for images (max_queue of [diffusion]) already wait; try again later`,
    );
  }
}
