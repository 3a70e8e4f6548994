// Generation thread: its entry module. It creates the actors `generation` and `models`, the event streams to the main thread, and
// the text workers.
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

/** Run time in ms after which a text task counts as slow. Other tasks do not wait for a slow task. */
const quickMs = 250;
/** Minimum time limit in ms for reading a model's vocabulary and template, even if the limit of text tasks is shorter. */
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
  startGeneration(place, pool);
  return null;
}

/** Sets up the thread. `runner` runs the text tasks. */
export function startGeneration(place: PlaceContext<GenerationPlaceInit>, runner: TaskRunner): void {
  const { mailboxLimit, streamWindow, textTasks } = place.init;
  const hub = new StreamHub(place.spawner, { channel: eventChannel, window: streamWindow });
  const taskLimits = {
    seconds: textTasks.limitSeconds,
    loadSeconds: Math.max(textTasks.limitSeconds, loadLimitMs / 1000),
    heapMiB: textTasks.heapMiB,
  };
  const tasks = new TextTasks(runner, taskLimits, (endedTask) =>
    place.progress({ endedTask } satisfies GenerationPlaceReport),
  );
  const actor = new GenerationActor({ hub, system: place.system, clock: realClock, tasks });
  // A full mailbox would lose a `start` message, and the stream of that message would never end. The mailbox stays almost empty,
  // because the handlers of this actor do not wait.
  place.system.spawn<GenerationProtocol>("generation", actor, { mailboxLimit });
  place.system.spawn<ModelsProtocol>("models", actor);
  place.onStop(() => runner.close());
}
