// Format choice: determines the tool-call format that a model's chat template uses. Called once per model.

import { functionGemma, gemma } from "./formats/gemma.ts";
import { harmony } from "./formats/harmony.ts";
import { commandR, fireFunction, generic, granite, hermes, llama, nemotron, phi } from "./formats/json-calls.ts";
import { type MarkedFormat, markedFormat } from "./formats/marked-format.ts";
import {
  deepseekFenced,
  deepseekPlain,
  functionTags,
  kimi,
  mistral,
  mistralList,
  recipients,
} from "./formats/named-calls.ts";
import { coder, glm, miniMax, seed } from "./formats/tagged-parameters.ts";
import { thinkingTags } from "./thinking.ts";
import type { FormatName, ToolFormat } from "./tool-format.ts";

/**
 * Formats and the texts that identify them. The first entry whose texts all occur in the template is chosen, so
 * specific entries come before general ones.
 */
const families: readonly (readonly [format: MarkedFormat, ...texts: readonly string[]])[] = [
  [deepseekFenced, "<｜tool▁calls▁begin｜>", "```json"],
  [deepseekPlain, "<｜tool▁calls▁begin｜>"],
  [kimi, "<|tool_call_argument_begin|>"],
  [mistral, "[TOOL_CALLS]", "[ARGS]"],
  [mistralList, "[TOOL_CALLS]"],
  [gemma, "<|tool_call>call:"],
  [functionGemma, "<start_function_call>"],
  [seed, "<seed:tool_call>"],
  [miniMax, "<minimax:tool_call>"],
  [glm, "<tool_call>", "<arg_key>"],
  [coder, "<tool_call>", "<function=", "<parameter="],
  [hermes, "<tool_call>"],
  [granite, "<|tool_call|>", "available_tools"],
  [granite, "<|start_of_role|>available_tools"],
  [phi, "<|tool_call|>"],
  [phi, "<|tool|>"],
  [nemotron, "<TOOLCALL>"],
  [commandR, "<|START_ACTION|>"],
  [fireFunction, "functools["],
  [recipients, ">>>all"],
  [functionTags, "<function="],
  [llama, "<|start_header_id|>", "ipython"],
];

/**
 * Returns the tool-call format of a model, from the source of its chat template. If the template has no tools or writes
 * calls in an unknown way, returns the generic format, which the prompt describes to the model.
 */
export function chooseFormat(templateSource: string): ToolFormat {
  const thinking = thinkingTags(templateSource);
  if (templateSource.includes("<|channel|>")) return harmony(thinking);
  const family = families.find(([, ...texts]) => texts.every((text) => templateSource.includes(text)));
  return markedFormat(family?.[0] ?? generic, thinking);
}

/** Returns the format for a name and tags that another thread has chosen. */
export function formatNamed({ name, thinking }: FormatName): ToolFormat {
  if (name === "harmony") return harmony(thinking);
  const family = families.find(([format]) => format.name === name);
  return markedFormat(family?.[0] ?? generic, thinking);
}
