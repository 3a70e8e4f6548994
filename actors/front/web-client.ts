// Web client: the main thread's client of the web thread. Starts the thread, and restarts it whenever it ends. Running calls fail
// when the thread ends.
import { tmpdir } from "node:os";
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import type { Ref } from "../../runtime/actor/ref.ts";
import { type RestartPolicy, type Supervisor, supervise } from "../../runtime/actor/supervision.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { ServerError } from "../../runtime/errors.ts";
import { createProcessFolder } from "../../runtime/host/process-folder.ts";
import { removeFolder } from "../../runtime/host/remove-folder.ts";
import type { Logger } from "../../runtime/log/log.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import type { FoundPage, PageText, Web } from "../api/agent/web.ts";
import type { EmbedderProtocol, WebPlaceInit, WebProtocol } from "../messages.ts";
import { webModule } from "../placement.ts";

const startTimeoutMs = 30_000;
/** Timeout of a call in ms. It is longer than the time limits of the web thread, so those limits end a call first. */
const callTimeoutMs = 60_000;
const restartPolicy: RestartPolicy = {
  kind: "restart",
  minBackoffMs: 500,
  maxBackoffMs: 30_000,
  resetAfterMs: 60_000,
  maxRestarts: Number.POSITIVE_INFINITY,
};

/** Computes a vector of Euclidean length 1 for each text. `inputType`: role of the texts for the embedding model. */
export type EmbedTexts = (
  texts: readonly string[],
  inputType: "query" | "document",
  client: string,
  signal: AbortSignal,
) => Promise<readonly Float32Array[]>;

export interface WebClientOptions {
  readonly init: Omit<WebPlaceInit, "folder" | "embeds">;
  /** Embeds texts to rank the passages of a page; null = passages are ranked by word matches. */
  readonly embed: EmbedTexts | null;
  readonly log: Logger;
  /** Entry module of the thread; absent = the module that allows only public addresses. */
  readonly module?: URL;
}

export class WebClient implements Web {
  readonly #options: WebClientOptions;
  readonly #system = new ActorSystem("front");
  #supervisor: Supervisor | null = null;
  #web: Ref<WebProtocol> | null = null;
  #folder: string | null = null;
  #lastId = 0;

  constructor(options: WebClientOptions) {
    this.#options = options;
    if (options.embed !== null) this.#system.spawn<EmbedderProtocol>("embedder", embedderOf(options.embed));
  }

  async start(): Promise<void> {
    const { log, init, embed, module = webModule } = this.#options;
    const folder = createProcessFolder("web", [tmpdir()]);
    this.#folder = folder;
    const full: WebPlaceInit = { ...init, folder, embeds: embed !== null };
    const onProgress = (told: unknown): void => {
      const { fields, message } = told as { readonly fields: object; readonly message: string };
      log.warn(fields, message);
    };
    await new Promise<void>((resolve, reject) => {
      this.#supervisor = supervise<null>({
        name: "web",
        start: (signal) =>
          spawnPlace({ name: "web", module, init: full, kind: "thread", startTimeoutMs, signal, onProgress }),
        policy: restartPolicy,
        onUp: ({ endpoint }) => {
          this.#web = this.#system.ref<WebProtocol>("web", endpoint);
          resolve();
        },
        onDown: ({ orderly, reason }, next) => {
          this.#web = null;
          if (orderly) return;
          log.error({ reason, retryInMs: next?.retryInMs }, "the web place ended; its running calls failed");
        },
        onEscalate: reject,
      });
    });
  }

  async stop(deadlineMs: number): Promise<void> {
    await this.#supervisor?.stop(deadlineMs);
    await this.#system.stop();
    if (this.#folder === null) return;
    await removeFolder(this.#folder).catch((error: unknown) => {
      this.#options.log.warn({ reason: String(error) }, "the folder of the web place could not be removed");
    });
  }

  async search(request: Parameters<Web["search"]>[0], signal: AbortSignal): Promise<readonly FoundPage[]> {
    return await this.#call(signal, (web, id) => web.ask("search", { ...request, id }, { timeoutMs: callTimeoutMs }));
  }

  async read(request: Parameters<Web["read"]>[0], signal: AbortSignal): Promise<PageText> {
    return await this.#call(signal, (web, id) => web.ask("read", { ...request, id }, { timeoutMs: callTimeoutMs }));
  }

  async #call<T>(signal: AbortSignal, call: (web: Ref<WebProtocol>, id: number) => Promise<T>): Promise<T> {
    const web = this.#web;
    if (web === null) throw new ServerError("peer_gone", "the web cannot be reached now; try again soon");
    if (signal.aborted) throw new ServerError("cancelled", "the request was cancelled before the web was asked");
    const id = ++this.#lastId;
    const cancel = (): void => web.tell("cancel", { id });
    signal.addEventListener("abort", cancel, { once: true });
    try {
      return await call(web, id);
    } finally {
      signal.removeEventListener("abort", cancel);
    }
  }
}

function embedderOf(embed: EmbedTexts): Behaviour<EmbedderProtocol> {
  const calls = new Map<number, AbortController>();
  return {
    embed: ({ id, texts, inputType, client }) => {
      const ended = new AbortController();
      calls.set(id, ended);
      return new DeferredReply(embed(texts, inputType, client, ended.signal).finally(() => calls.delete(id)));
    },
    cancel: ({ id }) => calls.get(id)?.abort(),
  };
}
