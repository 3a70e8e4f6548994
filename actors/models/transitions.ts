// Owns the one table of which status of a model follows which, and for what reason. ManagedModel moves by it alone, and
// docs/models.md shows it.
import assert from "node:assert";
import type { ModelStatus } from "../api/inference.ts";

interface Transition {
  readonly from: ModelStatus;
  readonly to: ModelStatus;
  /** When it happens, for the document. */
  readonly when: string;
}

/** Before the server has started, and of models that are not loaded with it. */
export const firstStatus: ModelStatus = "unloaded";

/** By reason. A reason that leads from two statuses has two rows. */
export const transitions = {
  start: [{ from: "unloaded", to: "reloading", when: "the server starts, and has room for it" }],
  request: [{ from: "unloaded", to: "reloading", when: "a request names it" }],
  reload: [
    { from: "unloaded", to: "reloading", when: "it is to be loaded: `POST /v1/models/reload`" },
    { from: "loaded", to: "unloaded", when: "it is to be loaded anew, and its requests are answered" },
  ],
  ready: [{ from: "reloading", to: "loaded", when: "it is loaded" }],
  failed: [
    { from: "reloading", to: "unloaded", when: "it cannot be loaded, or its engine does not stay up" },
    { from: "loaded", to: "unloaded", when: "its engine ended once too often" },
  ],
  unwanted: [
    {
      from: "reloading",
      to: "unloaded",
      when: "whoever named it left while it waited for another model to be unloaded",
    },
  ],
  crash: [{ from: "loaded", to: "reloading", when: "its engine ended, and is started again" }],
  unload: [
    { from: "loaded", to: "unloaded", when: "`POST /v1/models/unload`, and its requests are answered" },
    { from: "reloading", to: "unloaded", when: "`POST /v1/models/unload`, and no request waits for it" },
  ],
  idle: [{ from: "loaded", to: "unloaded", when: "no request has named it for `idle_unload_secs`" }],
  evict: [
    {
      from: "loaded",
      to: "unloaded",
      when: "another model needs its room (`max_loaded_models`), and its requests are answered",
    },
    { from: "reloading", to: "unloaded", when: "another model needs its room while its engine is started again" },
  ],
  stop: [
    { from: "loaded", to: "unloaded", when: "the server stops" },
    { from: "reloading", to: "unloaded", when: "the server stops while it is being loaded" },
  ],
} as const satisfies Readonly<Record<string, readonly Transition[]>>;

export type TransitionReason = keyof typeof transitions;

/** Throws where the table has no such transition: a mistake in the program. */
export function checkTransition(from: ModelStatus, to: ModelStatus, reason: TransitionReason): void {
  const rows: readonly Transition[] = transitions[reason];
  const isKnown = rows.some((row) => row.from === from && row.to === to);
  assert(isKnown, `a model does not go from ${from} to ${to} by "${reason}"`);
}

/** Every transition once, as the document has them. */
export function transitionRows(): readonly (Transition & { readonly reason: TransitionReason })[] {
  const reasons = Object.keys(transitions) as TransitionReason[];
  return reasons.flatMap((reason) => transitions[reason].map((row: Transition) => ({ ...row, reason })));
}
