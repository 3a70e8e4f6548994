// Entry module of a text worker thread, which runs the tasks of TextTasks.
import type { StartTasks } from "../../runtime/task/task.ts";
import type { TranslatorModule } from "../api/body-translators.ts";
import { textHandlers } from "./text-handlers.ts";

export interface TextWorkerInit {
  /** URL of the module with the body translators (see TranslatorModule). */
  readonly translators: string;
}

export const start: StartTasks<TextWorkerInit> = async (init, load) => {
  // The module is imported once; later calls use the cached module.
  return textHandlers(async () => ((await load(init.translators)) as TranslatorModule).translators);
};
