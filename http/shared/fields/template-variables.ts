// Field chat_template_kwargs: variables for the chat template. Variables that configure thinking are translated like the
// request fields for thinking. Other variables are passed to the template unchanged.
import { z } from "zod";
import { misspelt } from "../../../runtime/nearest.ts";
import { isBounded, tooLarge } from "./bounded.ts";
import { type Conflict, differing } from "./conflicts.ts";
import { type AskedThinking, effortField, thinkingSwitches } from "./thinking.ts";

/** Limits on all variables of a request together. */
const bounds = { depth: 16, values: 1000 };
const MAX_JSON_LENGTH = 64 * 1024;
const namePattern = /^[A-Za-z]\w{0,63}$/;

/** Variable names that the server or the template language itself sets. */
const reservedNames = new Set(
  (
    "messages tools functions documents datetime add_generation_prompt continue_final_message bos_token eos_token " +
    "true false none True False None range namespace raise_exception strftime_now"
  ).split(" "),
);

const knownFields = {
  enable_thinking: thinkingSwitches.enable_thinking,
  thinking: z.boolean().nullish().meta({ description: "Alias of enable_thinking." }),
  reasoning_effort: effortField,
} as const;

export const templateVariablesField = z
  .strictObject(knownFields)
  .catchall(z.unknown())
  .superRefine((variables, context) => {
    if (!isBounded(variables, bounds)) {
      context.addIssue({ code: "custom", message: tooLarge("variables", bounds) });
    } else if (JSON.stringify(variables).length > MAX_JSON_LENGTH) {
      const message = `expected variables of at most ${MAX_JSON_LENGTH} characters as JSON, got more`;
      context.addIssue({ code: "custom", message });
    }
    for (const name of Object.keys(variables)) {
      const message = wrongName(name);
      if (message !== null) context.addIssue({ code: "custom", path: [name], message });
    }
  })
  .nullish()
  .meta({ description: "Variables for the model's chat template; those that it does not use have no effect." });

type TemplateVariables = z.output<typeof templateVariablesField>;

/** Returns the thinking settings in the variables. */
export function thinkingAmong(variables: TemplateVariables): AskedThinking {
  return { effort: variables?.reasoning_effort, isOn: variables?.enable_thinking ?? variables?.thinking };
}

/** Returns the variables that do not configure thinking, as template arguments. */
export function otherVariables(variables: TemplateVariables) {
  const { enable_thinking: _isOn, thinking: _alias, reasoning_effort: _effort, ...others } = variables ?? {};
  return Object.keys(others).length === 0 ? {} : { variables: others };
}

/** Yields the conflicts among the variables, and between the variables and the request fields for thinking. */
export function* variableConflicts(variables: TemplateVariables, { effort, isOn }: AskedThinking): Iterable<Conflict> {
  const { thinking, enable_thinking, reasoning_effort } = variables ?? {};
  yield* differing("chat_template_kwargs.thinking", thinking, "chat_template_kwargs.enable_thinking", enable_thinking);
  yield* differing("chat_template_kwargs.enable_thinking", enable_thinking, "enable_thinking", isOn);
  yield* differing("chat_template_kwargs.thinking", thinking, "enable_thinking", isOn);
  yield* differing("chat_template_kwargs.reasoning_effort", reasoning_effort, "the reasoning effort", effort);
}

/** Returns why a variable name is not allowed; null if it is allowed. */
function wrongName(name: string): string | null {
  if (Object.hasOwn(knownFields, name)) return null;
  if (reservedNames.has(name)) return "this name is reserved: the server sets it; remove it";
  if (!namePattern.test(name)) return "expected a letter, then letters, digits and underscores; at most 64 in all";
  const meant = misspelt(name, Object.keys(knownFields));
  return meant === null ? null : `no such variable; did you mean "${meant}"?`;
}
