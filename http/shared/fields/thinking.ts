// Owns how long a model is asked to think, whatever protocol asks: the efforts there are, and what they and the switch of
// thinking come to for a template.
import { z } from "zod";
import type { TemplateArguments } from "../../../engines/generation.ts";

export const effortSchema = z.enum(["off", "none", "minimal", "low", "medium", "high", "xhigh", "max"]);

type Effort = z.output<typeof effortSchema>;

export const effortField = effortSchema
  .nullish()
  .meta({ description: "How long to think, where the model can tell; `none` is `off`, `max` comes to `xhigh`" });

/** What a request says of thinking, each left out where it says nothing. */
export interface AskedThinking {
  readonly effort?: Effort | null | undefined;
  readonly isOn?: boolean | null | undefined;
}

/** An effort implies thinking, and "off" its absence, unless the request says so itself. */
export function templateArguments({ effort, isOn }: AskedThinking): TemplateArguments {
  const reasoningEffort = knownEffort(effort);
  const enableThinking = isOn ?? (reasoningEffort === undefined ? undefined : reasoningEffort !== "off");
  return {
    ...(enableThinking === undefined ? {} : { enableThinking }),
    ...(reasoningEffort === undefined ? {} : { reasoningEffort }),
  };
}

/** Whether the effort says another thing of thinking than its switch. */
export function isContradictory({ effort, isOn }: AskedThinking): boolean {
  const known = knownEffort(effort);
  return known !== undefined && typeof isOn === "boolean" && isOn !== (known !== "off");
}

/** As the templates know it: some efforts have two names. */
export function knownEffort(effort: Effort | null | undefined): Effort | undefined {
  if (effort === "none") return "off";
  return effort === "max" ? "xhigh" : (effort ?? undefined);
}
