// Placement: the threads and processes ("places") of the server, the actors in each, and the modules that start them.
//
//   place        kind                                    actors
//   front        main thread                             none: http/ and the inference service
//   generation   worker thread                           generation, models
//   text         worker threads of `generation`          none: each runs text tasks, one at a time
//   model:<id>   child process or worker thread          model, with its step loop and engine
//                worker thread, for a remote model       model: requests to the servers that the model runs on
//                worker thread, if its servers give text only   remoteText: chat completions of these servers
//   model:<id>   child process                           diffusion, for a diffusion model
//   model:<id>   child process                           speech, for a speech model
//   decoder      child processes of a speech process     none: each decodes one audio file, then ends
//   state        worker thread                           responses, files, sessions
//   tools        child process                           tools: code and shell commands in sandboxed processes
//   web          worker thread                           web: web searches and page reading
//   reader       child processes of `web`                none: each reads web pages, one at a time
//   mcp          worker thread                           mcp: the MCP servers whose tools models may call
//   adapter      worker thread                           none: prepares one LoRA adapter, then ends

export const generationModule = new URL("./generation/place.js", import.meta.url);
export const textWorkerModule = new URL("./text-tasks/text-worker.js", import.meta.url);
export const modelModule = new URL("./model/place.js", import.meta.url);
export const diffusionModule = new URL("./diffusion/diffusion-place.js", import.meta.url);
export const speechModule = new URL("./speech/speech-place.js", import.meta.url);
export const remoteModelModule = new URL("./remote-model/place.js", import.meta.url);
export const remoteTextModule = new URL("./remote-text/place.js", import.meta.url);
export const stateModule = new URL("./state/state-place.js", import.meta.url);
export const toolsModule = new URL("./tools/tools-place.js", import.meta.url);
export const webModule = new URL("./web/web-place.js", import.meta.url);
export const mcpModule = new URL("./mcp-client/mcp-place.js", import.meta.url);
export const preparerModule = new URL("./lora-registry/preparer-place.js", import.meta.url);
