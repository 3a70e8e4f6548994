// Engine list. Each engine is imported on first use, for two reasons: the wasm engine must also run on systems where
// llama.cpp's libraries do not load, and the wasm engine's process must not map these libraries.
import type { Engine, EngineName } from "./engine.ts";

const engines: Readonly<Record<EngineName, () => Promise<Engine>>> = {
  llama: async () => (await import("./llama/engine.ts")).llamaEngine,
  wasm: async () => (await import("./wasm/engine.ts")).wasmEngine,
};

export function openEngine(name: EngineName): Promise<Engine> {
  return engines[name]();
}
