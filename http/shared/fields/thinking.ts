// Reasoning effort: the effort levels of all protocols, and the chat template arguments that result from an effort level and
// the thinking switch.
import { z } from "zod";
import type { TemplateArguments } from "../../../engines/generation.ts";
import { type Conflict, differing } from "./conflicts.ts";

export const effortSchema = z.enum(["off", "none", "minimal", "low", "medium", "high", "xhigh", "max"]);

type Effort = z.output<typeof effortSchema>;

export const effortField = effortSchema
  .nullish()
  .meta({ description: "Reasoning effort, for models that support it; `none` is `off`, `max` is `xhigh`." });

/** Request fields that switch thinking on or off, in several protocols. */
export const thinkingSwitches = {
  enable_thinking: z
    .boolean()
    .nullish()
    .meta({ description: "Whether the model reasons before it answers; by default the template decides." }),
  think: z
    .union([z.boolean(), z.enum(["low", "medium", "high"])], {
      error: 'expected true, false, "low", "medium" or "high"',
    })
    .nullish()
    .meta({ description: "Alias of enable_thinking or of the reasoning effort, as Ollama names it." }),
} as const;

type Think = z.output<typeof thinkingSwitches.think>;

/** Returns the thinking settings of a request. The alias `think` supplies settings that are not sent otherwise. */
export function withThink({ effort, isOn }: AskedThinking, think: Think): AskedThinking {
  return {
    effort: effort ?? (typeof think === "string" ? think : undefined),
    isOn: isOn ?? (typeof think === "boolean" ? think : undefined),
  };
}

/** Yields a conflict if the thinking settings and their alias `think` differ. */
export function* thinkConflicts({ effort, isOn }: AskedThinking, think: Think): Iterable<Conflict> {
  if (typeof think === "boolean") yield* differing("think", think, "enable_thinking", isOn);
  else yield* differing<string | null | undefined>("think", think, "the reasoning effort", effort);
}

/** Thinking settings of a request. */
export interface AskedThinking {
  readonly effort?: Effort | null | undefined;
  readonly isOn?: boolean | null | undefined;
}

/**
 * Returns the template arguments. The effort "off" switches thinking off, and any other effort switches it on, unless the
 * request sets the switch itself.
 */
export function templateArguments({ effort, isOn }: AskedThinking): TemplateArguments {
  const reasoningEffort = knownEffort(effort);
  const enableThinking = isOn ?? (reasoningEffort === undefined ? undefined : reasoningEffort !== "off");
  return {
    ...(enableThinking === undefined ? {} : { enableThinking }),
    ...(reasoningEffort === undefined ? {} : { reasoningEffort }),
  };
}

/** Checks whether the effort contradicts the thinking switch. */
export function isContradictory({ effort, isOn }: AskedThinking): boolean {
  const known = knownEffort(effort);
  return known !== undefined && typeof isOn === "boolean" && isOn !== (known !== "off");
}

/** Returns the name that templates use for an effort. Some efforts have two names in requests. */
export function knownEffort(effort: Effort | null | undefined): Effort | undefined {
  if (effort === "none") return "off";
  return effort === "max" ? "xhigh" : (effort ?? undefined);
}
