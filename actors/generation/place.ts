// Generation place: the module of a worker thread. Sets up the actors `generation` and `models`, the stream hub to the main thread,
// and the text workers.
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

/** A text task that takes longer counts as slow: other tasks do not wait for it. */
const quickMs = 250;
/** Least time limit for reading a model's vocabulary and template, also if that of a text task is shorter. */
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

/** Sets the place up with text tasks run by `runner`. */
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
  // A refused tell would leave the stream of `start` without an end. No handler waits, so this mailbox stays almost empty.
  place.system.spawn<GenerationProtocol>("generation", actor, { mailboxLimit });
  place.system.spawn<ModelsProtocol>("models", actor);
  place.onStop(() => runner.close());
}
