// Owns the list of engines. Each is imported when it is asked for: the wasm engine must run where the native libraries of the
// other do not load, and a process that runs it has none of them mapped.
import type { Engine, EngineName } from "./engine.ts";

const engines: Readonly<Record<EngineName, () => Promise<Engine>>> = {
  llama: async () => (await import("./llama/engine.ts")).llamaEngine,
  wasm: async () => (await import("./wasm/engine.ts")).wasmEngine,
};

export function openEngine(name: EngineName): Promise<Engine> {
  return engines[name]();
}
