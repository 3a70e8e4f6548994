// Web thread: its entry module. The thread searches the web and reads pages, and its actor has the protocol WebProtocol.
import type { Behaviour } from "../../runtime/actor/behaviour.ts";
import { DeferredReply } from "../../runtime/actor/deferred-reply.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { type ConnectionGuard, publicGuard } from "../../runtime/web/connection.ts";
import { GuardedFetcher } from "../../runtime/web/guarded-fetch.ts";
import type { EmbedderProtocol, WebPlaceInit, WebProtocol } from "../messages.ts";
import { HostLimits } from "./host-limits.ts";
import { PageReader } from "./page-reader.ts";
import { openProvider } from "./providers/open-provider.ts";
import { Extractor } from "./readers/extractor.ts";
import { WebService, type WebServiceOptions } from "./web-service.ts";

/** Allowed ports of pages. Other ports usually belong to services that are not websites. */
const pagePorts = [80, 443, 8080, 8443];
const embedMs = 30_000;

export async function start(place: PlaceContext<WebPlaceInit>): Promise<null> {
  return startWeb(place, { ...publicGuard, ports: pagePorts });
}

/** Sets up the thread. `guard`: determines which pages may be read. */
export function startWeb(place: PlaceContext<WebPlaceInit>, guard: ConnectionGuard): null {
  const { provider, results, embeds, folder, mailboxLimit } = place.init;
  const extractor = new Extractor(folder);
  const service = new WebService({
    provider: openProvider(provider, extractor),
    reader: new PageReader(new GuardedFetcher(guard), extractor, new HostLimits()),
    extractor,
    results,
    embed: embeds ? embedderOf(place) : null,
    warn: (fields, message) => place.progress({ fields, message }),
  });
  place.system.spawn<WebProtocol>("web", new WebActor(service), { mailboxLimit });
  place.onStop(() => extractor.close());
  return null;
}

/** Returns a function that computes embeddings on the main thread. */
function embedderOf({ system, spawner }: PlaceContext<WebPlaceInit>): NonNullable<WebServiceOptions["embed"]> {
  const embedder = system.ref<EmbedderProtocol>("embedder", spawner);
  let lastId = 0;
  return async (texts, inputType, client, signal) => {
    const id = ++lastId;
    const cancel = (): void => embedder.tell("cancel", { id });
    signal.addEventListener("abort", cancel, { once: true });
    try {
      return await embedder.ask("embed", { id, texts, inputType, client }, { timeoutMs: embedMs });
    } catch (error) {
      // Otherwise, the model would continue computing after the time limit.
      cancel();
      throw error;
    } finally {
      signal.removeEventListener("abort", cancel);
    }
  };
}

class WebActor implements Behaviour<WebProtocol> {
  readonly #service: WebService;
  /** Running calls by id. */
  readonly #calls = new Map<number, AbortController>();

  constructor(service: WebService) {
    this.#service = service;
  }

  readonly search: Behaviour<WebProtocol>["search"] = ({ id, ...call }) =>
    this.#run(id, (signal) => this.#service.search(call, signal));

  readonly read: Behaviour<WebProtocol>["read"] = ({ id, ...call }) =>
    this.#run(id, (signal) => this.#service.read(call, signal));

  readonly cancel: Behaviour<WebProtocol>["cancel"] = ({ id }) => this.#calls.get(id)?.abort();

  readonly onStop = (): void => {
    for (const call of this.#calls.values()) call.abort();
  };

  #run<T>(id: number, run: (signal: AbortSignal) => Promise<T>): DeferredReply<T> {
    const ended = new AbortController();
    this.#calls.set(id, ended);
    return new DeferredReply(run(ended.signal).finally(() => this.#calls.delete(id)));
  }
}
