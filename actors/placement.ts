// Placement: the threads and processes ("places") of the server, the actors in each, and the modules that start them.
//
//   place        kind                                    actors
//   front        main thread                             none: http/ and the inference service
//   generation   worker thread                           generation, models
//   text         worker threads of `generation`          none: each runs text tasks, one at a time
//   model:<id>   child process or worker thread          model, with its step loop and engine
//   state        worker thread                           responses, files, sessions
//   tools        worker thread                           tools: code and shell commands in confined processes
//   web          worker thread                           web: searches, pages of the web
//   reader       child processes of `web`                none: each reads web pages, one at a time
//   mcp          worker thread                           mcp: the MCP servers whose tools models may call
//   adapter      worker thread                           none: prepares one LoRA adapter, then ends

export const generationModule = new URL("./generation/place.js", import.meta.url);
export const textWorkerModule = new URL("./text-tasks/text-worker.js", import.meta.url);
export const modelModule = new URL("./model/place.js", import.meta.url);
export const stateModule = new URL("./state/state-place.js", import.meta.url);
export const toolsModule = new URL("./tools/tools-place.js", import.meta.url);
export const webModule = new URL("./web/web-place.js", import.meta.url);
export const mcpModule = new URL("./mcp-client/mcp-place.js", import.meta.url);
export const preparerModule = new URL("./lora-registry/preparer-place.js", import.meta.url);
