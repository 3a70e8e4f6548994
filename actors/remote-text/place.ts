// Thread of a model in text mode: it requests chat completions from upstream servers. The model counts as loaded when a server responds.
import { setTimeout as sleep } from "node:timers/promises";
import { UpstreamFailure } from "../../engines/remote/upstream.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import type { ModelPlaceReady, ModelReport, RemoteTextPlaceInit, RemoteTextProtocol } from "../messages.ts";
import { tokenlessReady } from "../models/tokenless-ready.ts";
import { TextActor } from "./text-actor.ts";
import { TextUpstream } from "./text-upstreams.ts";

const findMs = 500;

/** Starts the thread. Throws config_invalid if a server rejects the API key or lists no model. */
export async function start(place: PlaceContext<RemoteTextPlaceInit>): Promise<ModelPlaceReady> {
  const { settings, queueTimeoutMs, maxQueue, mailboxLimit } = place.init;
  const onNotice = (notice: string): void => place.progress({ notice } satisfies ModelReport);
  const upstreams = settings.urls.map((url) => new TextUpstream(url, settings));
  const model = await firstModel(upstreams, settings.connectTimeoutMs, onNotice);
  const actor = new TextActor({ settings, upstreams, queueTimeoutMs, maxQueue, front: place.spawner, onNotice });
  place.system.spawn<RemoteTextProtocol>("remoteText", actor, { mailboxLimit });
  place.onStop(async () => actor.stop());
  const path = settings.urls.join(", ");
  const ready = tokenlessReady({
    path,
    description: `${model} on ${path}`,
    engine: "remote",
    backend: "text",
    weightBytes: 0,
  });
  return { ...ready, capabilities: { ...ready.capabilities, generates: true } };
}

/** Waits until a server responds. Returns the name of its model. */
async function firstModel(
  upstreams: readonly TextUpstream[],
  timeoutMs: number,
  onNotice: (notice: string) => void,
): Promise<string> {
  for (let tries = 0; ; tries++) {
    for (const upstream of upstreams) {
      try {
        // Queried even if the name is known, because a server that does not respond is not ready.
        await upstream.connection.json("GET", "/v1/models", null, timeoutMs);
        return await upstream.find(timeoutMs);
      } catch (error) {
        if (!(error instanceof UpstreamFailure)) throw error;
        const { kind, message } = error;
        if (["refused", "key", "garbage"].includes(kind)) {
          const advice = kind === "key" ? "; check api_key_env" : "";
          throw new ServerError("config_invalid", `url ${upstream.url}: ${message}${advice}`, { param: "url" });
        }
        if (tries === 0) onNotice(`${upstream.url} does not answer (${kind}: ${message}); waiting for it`);
      }
    }
    await sleep(findMs);
  }
}
