// Reasoning effort: the efforts of all protocols, and the arguments for the chat template that result from an effort and the
// thinking switch.
import { z } from "zod";
import type { TemplateArguments } from "../../../engines/generation.ts";

export const effortSchema = z.enum(["off", "none", "minimal", "low", "medium", "high", "xhigh", "max"]);

type Effort = z.output<typeof effortSchema>;

export const effortField = effortSchema
  .nullish()
  .meta({ description: "Reasoning effort, for models that support it; `none` is `off`, `max` is `xhigh`." });

/** The thinking settings of a request; absent: not set. */
export interface AskedThinking {
  readonly effort?: Effort | null | undefined;
  readonly isOn?: boolean | null | undefined;
}

/** An effort other than "off" switches thinking on, and "off" switches it off, unless the request sets the switch itself. */
export function templateArguments({ effort, isOn }: AskedThinking): TemplateArguments {
  const reasoningEffort = knownEffort(effort);
  const enableThinking = isOn ?? (reasoningEffort === undefined ? undefined : reasoningEffort !== "off");
  return {
    ...(enableThinking === undefined ? {} : { enableThinking }),
    ...(reasoningEffort === undefined ? {} : { reasoningEffort }),
  };
}

/** Whether the effort contradicts the switch. */
export function isContradictory({ effort, isOn }: AskedThinking): boolean {
  const known = knownEffort(effort);
  return known !== undefined && typeof isOn === "boolean" && isOn !== (known !== "off");
}

/** The name that templates use: some efforts have two. */
export function knownEffort(effort: Effort | null | undefined): Effort | undefined {
  if (effort === "none") return "off";
  return effort === "max" ? "xhigh" : (effort ?? undefined);
}
