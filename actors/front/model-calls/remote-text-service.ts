// Remote text service: generates with models on upstream servers that return text only (upstream_mode), for the inference service.
import type { GenerateEvent, GenerateRequest } from "../../../engines/generation.ts";
import type { ActorSystem } from "../../../runtime/actor/system.ts";
import { movedWith } from "../../api/sealed-content.ts";
import { type RemoteTextProtocol, remoteTextChannel, remoteTextWindow } from "../../messages.ts";
import type { ModelManager } from "../../models/model-manager.ts";
import { shuttingDown } from "../../models/served-model.ts";
import { ModelCalls } from "./model-calls.ts";

export class RemoteTextService {
  readonly #models: ModelManager;
  readonly #calls: ModelCalls<RemoteTextProtocol>;
  readonly #isStopping: () => boolean;

  constructor(models: ModelManager, system: ActorSystem, isStopping: () => boolean) {
    this.#models = models;
    this.#isStopping = isStopping;
    const stream = { channel: remoteTextChannel, window: remoteTextWindow };
    this.#calls = new ModelCalls({ models, system, actor: "remoteText", ...stream });
  }

  serves(id: string): boolean {
    return this.#models.all.some(({ served }) => served.id === id && served.textRemote !== undefined);
  }

  async *generate(
    request: GenerateRequest,
    signal: AbortSignal,
    onPrepared: () => void,
  ): AsyncGenerator<readonly GenerateEvent[]> {
    const { refusals } = this.#models.get(request.model);
    const events = this.#calls.events<GenerateEvent>(request, signal, (actor, stream) => {
      actor.tell("generate", { stream, request }, movedWith(request));
      onPrepared();
    });
    try {
      for await (const batch of events) {
        const last = batch.at(-1);
        if (last?.type === "error") {
          refusals.note(last.error.code);
          yield [...batch.slice(0, -1), this.#isStopping() ? { type: "error", error: shuttingDown } : last];
        } else yield batch;
      }
    } finally {
      onPrepared();
    }
  }
}
