// Owns speculative decoding: before each step it guesses tokens that may follow those of the sequences that decode, as many
// as promise to pay; the step verifies them beside everything else, and what it finds teaches the next guess. The step
// loop calls it: prepare() before each schedule, observe() for each verified draft. What is sampled never depends on it.
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
  /** Tokens in them, and how many of those were right. */
  proposed: number;
  accepted: number;
  /** Drafts that no step verified. */
  dropped: number;
  /** Right ones by their place in the draft. */
  readonly acceptedAt: Int32Array;
}

/** Tokens that prompt lookup takes in before one step: what a long prompt has more, it takes in before the next ones. */
const lookupTokensPerStep = 4096;
/** A drafter that does not pay is tried again after so many steps, each time twice as many. */
const shortestIdle = 32;
const longestIdle = 1024;

/** What is known of one sequence. */
interface Follower {
  readonly sequence: Sequence;
  readonly lookup: PromptLookup | null;
  readonly record: DrafterRecord | null;
  /** Whether the draft it has now is the drafter's. */
  isDrafters: boolean;
}

export class Speculation {
  readonly statistics: SpeculationStatistics;
  readonly #options: SpeculationOptions;
  readonly #cost: StepTimeModel;
  readonly #drafter: Drafter | null;
  readonly #plan: DepthPlan;
  readonly #lookupAcceptance = sharedLookupAcceptance();
  readonly #drafterAcceptance = sharedDrafterAcceptance();
  readonly #followers = new WeakMap<Sequence, Follower>();
  /** Of the sequences the plan is about, in its order. */
  readonly #planned: Follower[] = [];
  /** Those that the drafter drafts for, and how far. */
  readonly #forDrafter: Sequence[] = [];
  readonly #drafterDepths: Int32Array;
  /** Steps since the drafter has drafted, and after how many it is tried again. */
  #idleSteps = 0;
  #idleLimit = shortestIdle;

  /** Null where the model cannot take back what it was fed, or there is nothing to draft from. */
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
    this.#cost = cost;
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
   * Drafts for the sequences that decode in the next step; `others` decode beside them and take no drafts. To be called
   * before each schedule(), with none where there are none: drafts that the step before did not verify are taken back.
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
    if (this.#drafter !== null) this.#runDrafter(this.#drafter, this.#cost.decodeMs(width));
  }

  /** Of a sequence's `drafted` tokens that a step verified, the first `accepted` were what was sampled. */
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

  /** Adds a sequence to the plan if there is something to draft from. Returns the tokens its lookup took in. */
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

  /** Writes the drafts that cost nothing, and collects what the drafter is to do. */
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

  /** A drafter that has been idle for long is tried on one sequence, and left alone twice as long if it still does not pay. */
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
    // One with a backlog reads first: its trial goes on.
    if (!this.#forDrafter.some(hasDraft)) return;
    this.#idleSteps = 0;
    this.#idleLimit = isTrial ? Math.min(this.#idleLimit * 2, longestIdle) : shortestIdle;
  }

  /** The sequence that the drafter has least to read of. */
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
