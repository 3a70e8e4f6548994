// ernie4_5: dense ERNIE 4.5 models, with the graph of llama.
import type { Architecture } from "./architecture.ts";
import { llama } from "./llama.ts";

export const ernie45: Architecture = { ...llama, name: "ernie4_5", takesExperts: false };
