// Owns the one table of which actors live on which place: the modules the kernel runs there.
//
//   place        carrier                             actors
//   front        main thread                         (http, Front)
//   agents       worker thread                       agents, models
//   text         worker threads of the agents place  none: they run text tasks, one at a time
//   model:<id>   child process, or worker thread     model, with its step loop and engine
//   state        worker thread                       responses
//   adapter      worker thread                       none: it prepares one LoRA adapter, and ends

export const generationModule = new URL("./generation/place.js", import.meta.url);
export const textWorkerModule = new URL("./text-tasks/text-worker.js", import.meta.url);
export const modelModule = new URL("./model/place.js", import.meta.url);
export const stateModule = new URL("./state/state-place.js", import.meta.url);
export const preparerModule = new URL("./lora-registry/preparer-place.js", import.meta.url);
