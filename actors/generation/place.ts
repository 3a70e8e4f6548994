// The module of the agents place (a worker thread): the agents and models actors, the stream hub towards the front, and the
// text workers.
import { StreamHub } from "../../runtime/actor/stream.ts";
import { realClock } from "../../runtime/clock.ts";
import { TaskPool } from "../../runtime/task/task-pool.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import {
  eventChannel,
  type GenerationPlaceInit,
  type GenerationPlaceReport,
  type GenerationProtocol,
  type ModelsProtocol,
} from "../messages.ts";
import { textWorkerModule } from "../placement.ts";
import { type TaskRunner, TextTasks } from "../text-tasks/text-tasks.ts";
import type { TextWorkerInit } from "../text-tasks/text-worker.ts";
import { GenerationActor } from "./generation-actor.ts";

/** A task on a client's text that takes longer is slow: others do not wait for it. */
const quickMs = 250;
/** Longest time a text worker takes to make a model's vocabulary and template ready, where a text task may not take longer. */
const loadLimitMs = 10_000;

export async function start(place: PlaceContext<GenerationPlaceInit>): Promise<null> {
  const { translators, limitSeconds, ...limits } = place.init.textTasks;
  const init: TextWorkerInit = { translators };
  const limitMs = limitSeconds * 1000;
  const pool = new TaskPool({
    ...limits,
    name: "text",
    module: textWorkerModule,
    init,
    quickMs,
    limitMs,
    loadLimitMs: Math.max(limitMs, loadLimitMs),
    maxQueuedName: "text_task_queue",
    onDown: (textWorkersAreDown) => place.progress({ textWorkersAreDown } satisfies GenerationPlaceReport),
  });
  startAgents(place, pool);
  return null;
}

/** The same with text tasks run by `runner`. */
export function startAgents(place: PlaceContext<GenerationPlaceInit>, runner: TaskRunner): void {
  const { mailboxLimit, streamWindow, stalledReaderMs, textTasks } = place.init;
  const hub = new StreamHub(place.spawner, { channel: eventChannel, window: streamWindow });
  const taskLimits = {
    seconds: textTasks.limitSeconds,
    loadSeconds: Math.max(textTasks.limitSeconds, loadLimitMs / 1000),
    heapMiB: textTasks.heapMiB,
  };
  const tasks = new TextTasks(runner, taskLimits, (endedTask) =>
    place.progress({ endedTask } satisfies GenerationPlaceReport),
  );
  const loop = new GenerationActor({ hub, system: place.system, clock: realClock, stalledReaderMs, tasks });
  place.system.spawn<GenerationProtocol>("agents", loop, { mailboxLimit });
  place.system.spawn<ModelsProtocol>("models", loop);
  place.onStop(() => runner.close());
}
