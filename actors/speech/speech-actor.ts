// Speech actor: runs the calls of one speech model. Several calls run concurrently and take turns using the model, by client: one
// sentence or one audio window is a turn. Further calls wait.
import type { SpeechModel } from "../../engines/speech/speech.ts";
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { EventOutlet } from "../../runtime/actor/event-outlet.ts";
import { StreamHub } from "../../runtime/actor/stream.ts";
import type { Endpoint } from "../../runtime/endpoint/endpoint.ts";
import { ServerError, toErrorRecord } from "../../runtime/errors.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { SpeakEvent, TranscribeEvent } from "../api/speech/speech.ts";
import { type SpeechLimits, type SpeechProtocol, speechChannel, speechWindow } from "../messages.ts";
import type { Call } from "./call.ts";
import { speak } from "./speak.ts";
import { transcribe } from "./transcribe.ts";

/** Maximum number of concurrent calls. Each may hold decoded audio of the maximum length. */
const concurrentCalls = 4;

export class SpeechActor implements Behaviour<SpeechProtocol> {
  readonly #speech: SpeechModel;
  readonly #limits: SpeechLimits;
  readonly #hub: StreamHub;
  readonly #calls = new Gate(concurrentCalls);
  readonly #turns = new Gate(1);
  readonly #running = new Map<AbortController, Promise<void>>();

  /** `front`: endpoint of the caller. */
  constructor(speech: SpeechModel, limits: SpeechLimits, front: Endpoint) {
    this.#speech = speech;
    this.#limits = limits;
    this.#hub = new StreamHub(front, { channel: speechChannel, window: speechWindow });
  }

  readonly speak: Behaviour<SpeechProtocol>["speak"] = ({ stream, request }) => {
    this.#start<SpeakEvent>(stream, request.client, async (call) => {
      if (this.#speech.task === "speak") await speak(this.#speech.model, request, call);
      else throw new ServerError("unsupported", `model "${request.model}" transcribes, it does not speak`);
    });
  };

  readonly transcribe: Behaviour<SpeechProtocol>["transcribe"] = ({ stream, request }) => {
    this.#start<TranscribeEvent>(stream, request.client, async (call) => {
      if (this.#speech.task === "transcribe") await transcribe(this.#speech.model, request, call);
      else throw new ServerError("unsupported", `model "${request.model}" speaks, it does not transcribe`);
    });
  };

  /** Ends all calls with the error `draining`. Resolves when no call uses the model any more. */
  async stop(): Promise<void> {
    const reason = new ServerError("draining", "the model is being stopped; send the request again");
    for (const ended of this.#running.keys()) ended.abort(reason);
    await Promise.allSettled(this.#running.values());
  }

  #start<Event extends SpeakEvent | TranscribeEvent>(
    stream: number,
    client: string,
    run: (call: Call<Event>) => Promise<void>,
  ): void {
    const ended = new AbortController();
    const { signal } = ended;
    const outlet = new EventOutlet<Event>(this.#hub, stream, () =>
      ended.abort(new ServerError("cancelled", "the request was cancelled")),
    );
    const refusal = this.#refusal();
    const call: Call<Event> = {
      limits: this.#limits,
      signal,
      send: (event) => outlet.send(event),
      turn: (use) => this.#turns.pass(use, client, signal),
    };
    const running = refusal !== null ? Promise.reject(refusal) : this.#calls.pass(() => run(call), client, signal);
    const settled = running
      .catch((thrown: unknown) => {
        // After an abort, any error is a consequence of the abort.
        const error = toErrorRecord(signal.aborted ? signal.reason : thrown);
        outlet.sendLast({ type: "error", error } as Event);
      })
      .finally(() => {
        outlet.end();
        this.#running.delete(ended);
      });
    this.#running.set(ended, settled);
  }

  #refusal(): ServerError | null {
    const { maxQueue } = this.#limits;
    if (this.#running.size < maxQueue + concurrentCalls) return null;
    return new ServerError("queue_full", `${maxQueue} speech requests (max_queue) already wait; try again later`);
  }
}
