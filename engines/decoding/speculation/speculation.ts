// Speculation: speculative decoding. Before each step it drafts tokens for decoding sequences, if they are expected to
// pay; the step verifies them beside everything else, and the results improve the next drafts. The step loop calls
// prepare() before each schedule and observe() for each verified draft. Drafts never change what is sampled.
import type { Sequence } from "../scheduler/sequence.ts";
import type { StepTimeModel } from "../scheduler/step-time-model.ts";
import { DepthPlan, type DraftSource } from "./depth.ts";
import type { Drafter } from "./drafter.ts";
import { DrafterRecord, sharedDrafterAcceptance } from "./drafter-record.ts";
import { openDrafter } from "./open-drafter.ts";
import type { SpeculationOptions, SpeculationParts } from "./options.ts";
import { PromptLookup, sharedLookupAcceptance } from "./prompt-lookup.ts";

/** Totals since the start. */
export interface SpeculationStatistics {
  /** Drafts that were verified. */
  drafts: number;
  /** Their tokens, and the number of right ones. */
  proposed: number;
  accepted: number;
  /** Drafts that no step verified. */
  dropped: number;
  /** Right tokens by position in the draft. */
  readonly acceptedAt: Int32Array;
}

/** Most tokens that prompt lookup reads before one step; the rest of a long prompt follows before later steps. */
const lookupTokensPerStep = 4096;
/** A drafter that does not pay is tried again after this number of steps, doubled each time. */
const shortestIdle = 32;
const longestIdle = 1024;

/** State of one sequence. */
interface Follower {
  readonly sequence: Sequence;
  readonly lookup: PromptLookup | null;
  readonly record: DrafterRecord | null;
  /** Whether the drafter made its current draft. */
  isDrafters: boolean;
}

export class Speculation {
  readonly statistics: SpeculationStatistics;
  readonly #options: SpeculationOptions;
  readonly #stepTimes: StepTimeModel;
  readonly #drafter: Drafter | null;
  readonly #plan: DepthPlan;
  readonly #lookupAcceptance = sharedLookupAcceptance();
  readonly #drafterAcceptance = sharedDrafterAcceptance();
  readonly #followers = new WeakMap<Sequence, Follower>();
  /** The sequences of the plan, in its order. */
  readonly #planned: Follower[] = [];
  /** The sequences that the drafter drafts for, and their depths. */
  readonly #forDrafter: Sequence[] = [];
  readonly #drafterDepths: Int32Array;
  /** Steps since the drafter's last draft, and the number after which it is tried again. */
  #idleSteps = 0;
  #idleLimit = shortestIdle;

  /** Null if the model cannot roll back, or there is no source of drafts. */
  static create(parts: SpeculationParts): Speculation | null {
    const { model, draft, options } = parts;
    const hasSource = options.promptLookup || draft !== null || Boolean(model.mtp);
    const canDraft = options.maxDraftTokens > 0 && hasSource;
    const { truncate, generates } = model.capabilities;
    const hasRows = model.capacity.maxLogitsRows > 1;
    if (truncate && generates && canDraft && hasRows) return new Speculation(parts);
    draft?.dispose();
    return null;
  }

  private constructor(parts: SpeculationParts) {
    const { model, options, cost } = parts;
    const { maxSequences, maxLogitsRows, maxBatchTokens } = model.capacity;
    this.#options = options;
    this.#stepTimes = cost;
    this.#drafter = openDrafter(parts);
    this.#plan = new DepthPlan(
      cost,
      {
        maxSequences,
        maxDepth: options.maxDraftTokens,
        maxDecodeTokens: Math.min(maxLogitsRows, maxBatchTokens),
      },
      (sequences) => this.#drafter?.tokenMs(sequences) ?? 0,
    );
    this.#drafterDepths = new Int32Array(maxSequences);
    const acceptedAt = new Int32Array(options.maxDraftTokens);
    this.statistics = { drafts: 0, proposed: 0, accepted: 0, dropped: 0, acceptedAt };
  }

  /**
   * Drafts for the sequences that decode in the next step; `others` decode beside them without drafts. Call it before
   * each schedule(), also with no sequences: drafts that the previous step did not verify are withdrawn.
   */
  prepare(decodes: readonly Sequence[], others = 0): void {
    for (const { sequence } of this.#planned) {
      if (sequence.draftCount > 0) this.statistics.dropped++;
      sequence.draftCount = 0;
    }
    this.#planned.length = 0;
    this.#plan.clear();
    let budget = lookupTokensPerStep;
    for (const sequence of decodes) budget -= this.#consider(this.#followerOf(sequence), budget);
    if (this.#planned.length === 0) return;
    const width = decodes.length + others;
    this.#plan.choose(width);
    this.#write();
    if (this.#drafter !== null) this.#runDrafter(this.#drafter, this.#stepTimes.decodeMs(width));
  }

  /** A step verified a sequence's `drafted` tokens: the first `accepted` equal the sampled ones. */
  observe(sequence: Sequence, drafted: number, accepted: number): void {
    if (drafted === 0) return;
    const { statistics } = this;
    statistics.drafts++;
    statistics.proposed += drafted;
    statistics.accepted += accepted;
    for (let i = 0; i < accepted; i++) statistics.acceptedAt[i] = (statistics.acceptedAt[i] as number) + 1;
    const follower = this.#followers.get(sequence);
    if (!follower?.isDrafters) return;
    follower.record?.learn(drafted, accepted);
    this.#drafter?.observe(sequence, accepted);
  }

  /** A sequence has ended or lost its slot. */
  forget(sequence: Sequence): void {
    sequence.draftCount = 0;
    this.#followers.delete(sequence);
    this.#drafter?.forget(sequence);
  }

  dispose(): void {
    this.#drafter?.dispose();
  }

  /** Adds a sequence to the plan if it has a draft. Returns the number of tokens its lookup read. */
  #consider(follower: Follower, budget: number): number {
    const { sequence, lookup } = follower;
    sequence.draftCount = 0;
    follower.isDrafters = false;
    const taken = lookup?.follow(budget) ?? 0;
    // The step itself samples one token more than the draft has.
    const room = Math.min(this.#options.maxDraftTokens, sequence.tokens.length - sequence.total - 1);
    const source = room > 0 ? this.#sourceOf(follower) : null;
    if (source === null) return taken;
    follower.isDrafters = source === follower.record;
    const maxDepth = follower.isDrafters ? (this.#drafter?.maxDepth ?? 0) : room;
    this.#planned.push(follower);
    this.#plan.add(source, Math.min(room, maxDepth), follower.isDrafters);
    return taken;
  }

  /** A long match is as good as the drafter and costs nothing. */
  #sourceOf({ sequence, lookup, record }: Follower): DraftSource | null {
    const matched = lookup?.hasDraft ? lookup : null;
    if (record === null || this.#drafter?.backlog(sequence) === Infinity) return matched;
    return matched !== null && matched.chance(0) >= record.chance(0) ? matched : record;
  }

  /** Writes the free drafts, and collects the drafter's work. */
  #write(): void {
    this.#forDrafter.length = 0;
    for (let i = 0; i < this.#planned.length; i++) {
      const depth = this.#plan.depths[i] as number;
      if (depth === 0) continue;
      const { sequence, lookup, isDrafters } = this.#planned[i] as Follower;
      sequence.draft ??= new Int32Array(this.#options.maxDraftTokens);
      if (isDrafters) {
        this.#drafterDepths[this.#forDrafter.length] = depth;
        this.#forDrafter.push(sequence);
      } else if (lookup !== null) {
        lookup.write(sequence.draft, depth);
        sequence.draftCount = depth;
      }
    }
  }

  /** A long-idle drafter is tried on one sequence, and rests twice as long if it still does not pay. */
  #runDrafter(drafter: Drafter, stepMs: number): void {
    const isTrial = this.#forDrafter.length === 0;
    if (isTrial) {
      if (++this.#idleSteps < this.#idleLimit) return;
      const nearest = this.#nearest(drafter);
      if (nearest === null) return;
      nearest.draft ??= new Int32Array(this.#options.maxDraftTokens);
      this.#drafterDepths[0] = 1;
      this.#forDrafter.push(nearest);
    }
    drafter.draft(this.#forDrafter, this.#drafterDepths, stepMs);
    // A sequence with a backlog reads first: its trial continues.
    if (!this.#forDrafter.some(hasDraft)) return;
    this.#idleSteps = 0;
    this.#idleLimit = isTrial ? Math.min(this.#idleLimit * 2, longestIdle) : shortestIdle;
  }

  /** The sequence with the shortest backlog in the drafter. */
  #nearest(drafter: Drafter): Sequence | null {
    let nearest: Sequence | null = null;
    for (const { sequence, isDrafters } of this.#planned) {
      if (!isDrafters) continue;
      if (nearest === null || drafter.backlog(sequence) < drafter.backlog(nearest)) nearest = sequence;
    }
    return nearest;
  }

  #followerOf(sequence: Sequence): Follower {
    const known = this.#followers.get(sequence);
    if (known) return known;
    const follower: Follower = {
      sequence,
      lookup: this.#options.promptLookup ? new PromptLookup(sequence, this.#lookupAcceptance) : null,
      record: this.#drafter === null ? null : new DrafterRecord(this.#drafterAcceptance),
      isDrafters: false,
    };
    this.#followers.set(sequence, follower);
    return follower;
  }
}

function hasDraft(sequence: Sequence): boolean {
  return sequence.draftCount > 0;
}
