// Owns what runs on an agents place (a worker thread): the agents and models actors and the stream hub towards the front.
import { StreamHub } from "../../runtime/actor/stream.ts";
import { realClock } from "../../runtime/clock.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { type AgentsPlaceInit, type AgentsProtocol, eventChannel, type ModelsProtocol } from "../messages.ts";
import { AgentLoop } from "./agent-loop.ts";

export async function start(place: PlaceContext<AgentsPlaceInit>): Promise<null> {
  const { mailboxLimit, streamWindow, stalledReaderMs } = place.init;
  const hub = new StreamHub(place.spawner, { channel: eventChannel, window: streamWindow });
  const loop = new AgentLoop({ hub, system: place.system, clock: realClock, stalledReaderMs });
  place.system.spawn<AgentsProtocol>("agents", loop, { mailboxLimit });
  place.system.spawn<ModelsProtocol>("models", loop);
  return null;
}
