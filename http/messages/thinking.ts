// Owns the fields of a messages request about thinking: the vendor's `thinking` and effort, and the two this server's
// protocols share; what they come to, and where they contradict each other.
import { z } from "zod";
import type { TemplateArguments } from "../../engines/chat.ts";
import { ignored, notYet, refusedVariants } from "../fields.ts";
import { expectedVariant } from "../issues.ts";

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

export const effortField = z
  .enum(["low", "medium", "high", "xhigh", "max"])
  .nullish()
  .meta({ description: 'Told to the templates that ask; "max" comes to "xhigh"' });

export const thinkingFields = {
  thinking: thinking.nullish().meta({ description: "Left out: as the model's template has it" }),
  enable_thinking: z.boolean().nullish(),
  reasoning_effort: z.enum(["off", "none", "low", "medium", "high", "xhigh"]).nullish(),
} as const;

type ThinkingFields = z.output<z.ZodObject<typeof thinkingFields>> & {
  readonly output_config?: { readonly effort?: z.output<typeof effortField> } | null | undefined;
};

/** null where thinking has no bound. */
export function thinkingBudget({ thinking }: ThinkingFields): number | null {
  return thinking?.type === "enabled" ? thinking.budget_tokens : null;
}

/** `reasoning_effort` implies thinking, and "off" its absence, unless the request says so itself; the vendor's effort does not. */
export function templateArguments(fields: ThinkingFields): TemplateArguments {
  const effort = ownEffort(fields);
  const enableThinking = explicit(fields) ?? (effort === undefined ? undefined : effort !== "off");
  const vendorEffort = fields.output_config?.effort ?? undefined;
  const reasoningEffort = effort ?? (vendorEffort === "max" ? "xhigh" : vendorEffort);
  return {
    ...(enableThinking === undefined ? {} : { enableThinking }),
    ...(reasoningEffort === undefined ? {} : { reasoningEffort }),
  };
}

/** Each as a field and what is wrong with it. */
export function* thinkingConflicts(fields: ThinkingFields): Iterable<readonly [field: string, message: string]> {
  const { thinking, enable_thinking, output_config } = fields;
  if (thinking && typeof enable_thinking === "boolean" && enable_thinking !== (thinking.type !== "disabled")) {
    yield ["enable_thinking", `${enable_thinking} contradicts thinking of type "${thinking.type}"; send one of them`];
  }
  const effort = ownEffort(fields);
  if (effort === undefined) return;
  const isOn = explicit(fields);
  if (isOn !== undefined && isOn !== (effort !== "off")) {
    yield ["reasoning_effort", `"${effort}" contradicts thinking being ${isOn ? "on" : "off"}`];
  }
  if (typeof output_config?.effort === "string" && output_config.effort !== effort) {
    yield ["reasoning_effort", `"${effort}" contradicts output_config.effort; send one of them`];
  }
}

function ownEffort({ reasoning_effort: effort }: ThinkingFields): string | undefined {
  return effort === "none" ? "off" : (effort ?? undefined);
}

function explicit({ thinking, enable_thinking }: ThinkingFields): boolean | undefined {
  return enable_thinking ?? (thinking ? thinking.type !== "disabled" : undefined);
}
