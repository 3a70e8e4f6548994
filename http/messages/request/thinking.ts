// Owns the fields of a messages request about thinking: the vendor's `thinking` and effort, and the two this server's
// protocols share; what they come to, and where they contradict each other.
import { z } from "zod";
import type { TemplateArguments } from "../../../engines/generation.ts";
import { expectedVariant } from "../../issues.ts";
import type { Conflict } from "../../shared/fields/conflicts.ts";
import { ignored, notYet, refusedVariants } from "../../shared/fields/fields.ts";
import {
  type AskedThinking,
  templateArguments as commonArguments,
  effortField,
  effortSchema,
  isContradictory,
  knownEffort,
} from "../../shared/fields/thinking.ts";

const display = ignored(z.enum(["summarized", "omitted"]), "what was thought is given as it was");

const thinking = z.discriminatedUnion(
  "type",
  [
    z.strictObject({
      type: z.literal("enabled"),
      budget_tokens: z.int().min(1).meta({ description: "Most tokens of thinking; fewer than max_tokens" }),
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
  .meta({ description: "Told to the templates that ask; `max` comes to `xhigh`" });

export const thinkingFields = {
  thinking: thinking.nullish().meta({ description: "Left out: as the model's template has it" }),
  enable_thinking: z.boolean().nullish(),
  reasoning_effort: effortField,
} as const;

type ThinkingFields = z.output<z.ZodObject<typeof thinkingFields>> & {
  readonly output_config?: { readonly effort?: z.output<typeof vendorEffortField> } | null | undefined;
};

/** null where thinking has no bound. */
export function thinkingBudget({ thinking }: ThinkingFields): number | null {
  return thinking?.type === "enabled" ? thinking.budget_tokens : null;
}

/** The vendor's effort, unlike our own, does not switch thinking. */
export function templateArguments(fields: ThinkingFields): TemplateArguments {
  const own = askedThinking(fields);
  const vendors = knownEffort(fields.output_config?.effort);
  return { ...(vendors === undefined ? {} : { reasoningEffort: vendors }), ...commonArguments(own) };
}

export function* thinkingConflicts(fields: ThinkingFields): Iterable<Conflict> {
  const { thinking, enable_thinking, reasoning_effort: sent, output_config } = fields;
  if (thinking && typeof enable_thinking === "boolean" && enable_thinking !== (thinking.type !== "disabled")) {
    yield ["enable_thinking", `${enable_thinking} contradicts thinking of type "${thinking.type}"; send one of them`];
  }
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

function askedThinking({ thinking, enable_thinking, reasoning_effort }: ThinkingFields): AskedThinking {
  const isOn = enable_thinking ?? (thinking ? thinking.type !== "disabled" : undefined);
  return { effort: reasoning_effort, isOn };
}
