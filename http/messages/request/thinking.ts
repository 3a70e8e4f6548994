// Thinking fields of a messages request: translation and conflicts of the protocol's own `thinking` and `output_config.effort`,
// and of the two fields shared by all protocols.
import { z } from "zod";
import type { TemplateArguments } from "../../../engines/generation.ts";
import { expectedVariant } from "../../issues.ts";
import type { Conflict } from "../../shared/fields/conflicts.ts";
import { ignored, notYet, refusedVariants } from "../../shared/fields/fields.ts";
import {
  otherVariables,
  templateVariablesField,
  thinkingAmong,
  variableConflicts,
} from "../../shared/fields/template-variables.ts";
import {
  type AskedThinking,
  templateArguments as commonArguments,
  effortField,
  effortSchema,
  isContradictory,
  knownEffort,
  thinkConflicts,
  thinkingSwitches,
  withThink,
} from "../../shared/fields/thinking.ts";

const display = ignored(z.enum(["summarized", "omitted"]), "thinking is always returned in full");

const thinking = z.discriminatedUnion(
  "type",
  [
    z.strictObject({
      type: z.literal("enabled"),
      budget_tokens: z.int().min(1).meta({ description: "Maximum number of thinking tokens; less than max_tokens." }),
      display,
    }),
    z.strictObject({ type: z.literal("adaptive"), display }),
    z.strictObject({ type: z.literal("disabled") }),
    refusedVariants(["between_tools"], (type) => notYet(`thinking of type "${type}"`)),
  ],
  { error: expectedVariant("thinking", "type", ["enabled", "adaptive", "disabled"]) },
);

export const vendorEffortField = effortSchema
  .extract(["low", "medium", "high", "xhigh", "max"])
  .nullish()
  .meta({ description: "Reasoning effort, for templates that use it; `max` is `xhigh`." });

export const thinkingFields = {
  thinking: thinking.nullish().meta({ description: "Thinking mode; by default the chat template decides." }),
  ...thinkingSwitches,
  reasoning_effort: effortField,
  chat_template_kwargs: templateVariablesField,
} as const;

type ThinkingFields = z.output<z.ZodObject<typeof thinkingFields>> & {
  readonly output_config?: { readonly effort?: z.output<typeof vendorEffortField> } | null | undefined;
};

/** Returns the maximum number of reasoning tokens; null: unlimited. */
export function thinkingBudget({ thinking }: ThinkingFields): number | null {
  return thinking?.type === "enabled" ? thinking.budget_tokens : null;
}

/**
 * Returns the arguments of the chat template. `output_config.effort` does not switch thinking on or off, unlike
 * `reasoning_effort`.
 */
export function templateArguments(fields: ThinkingFields): TemplateArguments {
  const own = askedThinking(fields);
  const vendors = knownEffort(fields.output_config?.effort);
  const others = otherVariables(fields.chat_template_kwargs);
  return { ...(vendors === undefined ? {} : { reasoningEffort: vendors }), ...commonArguments(own), ...others };
}

export function* thinkingConflicts(fields: ThinkingFields): Iterable<Conflict> {
  const { thinking, enable_thinking, reasoning_effort: sent, output_config, chat_template_kwargs } = fields;
  const switches = [
    ["enable_thinking", enable_thinking],
    ["chat_template_kwargs", thinkingAmong(chat_template_kwargs).isOn],
  ] as const;
  for (const [field, isOn] of switches) {
    if (thinking && typeof isOn === "boolean" && isOn !== (thinking.type !== "disabled"))
      yield [field, `${isOn} contradicts thinking of type "${thinking.type}"; send one of them`];
  }
  yield* variableConflicts(chat_template_kwargs, { effort: sent, isOn: enable_thinking });
  yield* thinkConflicts(sentThinking(fields), fields.think);
  const asked = askedThinking(fields);
  if (isContradictory(asked)) {
    yield ["reasoning_effort", `"${sent}" contradicts thinking being ${asked.isOn ? "on" : "off"}`];
  }
  const effort = knownEffort(sent);
  const vendors = knownEffort(output_config?.effort);
  if (effort !== undefined && vendors !== undefined && effort !== vendors) {
    yield ["reasoning_effort", `"${sent}" contradicts output_config.effort; send one of them`];
  }
}

function askedThinking(fields: ThinkingFields): AskedThinking {
  return withThink(sentThinking(fields), fields.think);
}

/** Returns the thinking settings in all fields of a request except the alias `think`. */
function sentThinking({ thinking, enable_thinking, reasoning_effort, ...fields }: ThinkingFields): AskedThinking {
  const { effort, isOn } = thinkingAmong(fields.chat_template_kwargs);
  return {
    effort: reasoning_effort ?? effort,
    isOn: enable_thinking ?? (thinking ? thinking.type !== "disabled" : isOn),
  };
}
