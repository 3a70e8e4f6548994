// Reasoning effort: the effort levels of all protocols, and the chat template arguments that follow from an effort level and
// the thinking switch.
import { z } from "zod";
import type { TemplateArguments } from "../../../engines/generation.ts";

export const effortSchema = z.enum(["off", "none", "minimal", "low", "medium", "high", "xhigh", "max"]);

type Effort = z.output<typeof effortSchema>;

export const effortField = effortSchema
  .nullish()
  .meta({ description: "Reasoning effort, for models that support it; `none` is `off`, `max` is `xhigh`." });

/** Thinking settings of a request. */
export interface AskedThinking {
  readonly effort?: Effort | null | undefined;
  readonly isOn?: boolean | null | undefined;
}

/**
 * Returns the template arguments. An effort other than "off" switches thinking on and "off" switches it off, unless the request
 * sets the switch itself.
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

/** Returns the effort name that templates use, because some efforts have two names. */
export function knownEffort(effort: Effort | null | undefined): Effort | undefined {
  if (effort === "none") return "off";
  return effort === "max" ? "xhigh" : (effort ?? undefined);
}
