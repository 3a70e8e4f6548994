// ernie4_5: the dense models of ERNIE 4.5, which are Llama.
import type { Architecture } from "./architecture.ts";
import { llama } from "./llama.ts";

export const ernie45: Architecture = { ...llama, name: "ernie4_5", takesExperts: false };
