// Speculation: speculative decoding. Before each step it drafts tokens for decoding sequences if this is expected to be
// faster. The step verifies the drafts together with its other tokens, and the results improve the estimates for later
// drafts. The step loop calls prepare() before each schedule() and observe() for each verified draft. Drafts never
// change which tokens are sampled.
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
  /** Number of verified drafts. */
  drafts: number;
  /** Number of tokens in the verified drafts, and number of these tokens that were accepted. */
  proposed: number;
  accepted: number;
  /** Number of drafts that no step verified. */
  dropped: number;
  /** Number of accepted tokens by position in the draft. */
  readonly acceptedAt: Int32Array;
}

/**
 * Maximum number of tokens that prompt lookup reads before one step. The rest of a long prompt is read before later
 * steps.
 */
const lookupTokensPerStep = 4096;
/**
 * Minimum and maximum number of steps after which an unused drafter is tried again. The number doubles after each
 * trial.
 */
const shortestIdle = 32;
const longestIdle = 1024;

/** Speculation state of one sequence. */
interface Follower {
  readonly sequence: Sequence;
  readonly lookup: PromptLookup | null;
  readonly record: DrafterRecord | null;
  /** Whether the current draft comes from the drafter (not from prompt lookup). */
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
  /** Sequences for which the next step may have drafts, in the order of `#plan` (the draft length of each sequence). */
  readonly #planned: Follower[] = [];
  /** Sequences for which the drafter must draft, and their depths (numbers of tokens to draft). */
  readonly #forDrafter: Sequence[] = [];
  readonly #drafterDepths: Int32Array;
  /** Number of steps since the drafter's last draft, and the number after which it is tried again. */
  #idleSteps = 0;
  #idleLimit = shortestIdle;

  /** Creates the speculation of a model; null if the model cannot verify drafts, or if there is no source of drafts. */
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
   * Drafts tokens for the sequences that decode in the next step. `others`: number of sequences that decode in the
   * same step without drafts. Call it before each schedule(), even with no sequences, because it withdraws drafts that
   * the previous step did not verify.
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

  /**
   * Records that a step has verified `drafted` tokens of a sequence, and that the first `accepted` of
   * them equal the sampled tokens.
   */
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

  /** Forgets a sequence that has ended or lost its slot. */
  forget(sequence: Sequence): void {
    sequence.draftCount = 0;
    this.#followers.delete(sequence);
    this.#drafter?.forget(sequence);
  }

  dispose(): void {
    this.#drafter?.dispose();
  }

  /**
   * Adds a sequence to the plan of the step if the sequence has a source of drafts. Returns the number of
   * tokens that prompt lookup read.
   */
  #consider(follower: Follower, budget: number): number {
    const { sequence, lookup } = follower;
    sequence.draftCount = 0;
    // Drafters read tokens, and a prompt with embeddings is not only tokens.
    if (sequence.spans.length > 0) return 0;
    follower.isDrafters = false;
    const taken = lookup?.follow(budget) ?? 0;
    // The step samples one token in addition to the draft.
    const room = Math.min(this.#options.maxDraftTokens, sequence.tokens.length - sequence.total - 1);
    const source = room > 0 ? this.#sourceOf(follower) : null;
    if (source === null) return taken;
    follower.isDrafters = source === follower.record;
    const maxDepth = follower.isDrafters ? (this.#drafter?.maxDepth ?? 0) : room;
    this.#planned.push(follower);
    this.#plan.add(source, Math.min(room, maxDepth), follower.isDrafters);
    return taken;
  }

  /**
   * Returns the source of drafts with the higher chance for the first token; null: none. If the chances are equal,
   * prompt lookup is preferred, because it costs nothing.
   */
  #sourceOf({ sequence, lookup, record }: Follower): DraftSource | null {
    const matched = lookup?.hasDraft ? lookup : null;
    if (record === null || this.#drafter?.backlog(sequence) === Infinity) return matched;
    return matched !== null && matched.chance(0) >= record.chance(0) ? matched : record;
  }

  /** Writes the drafts of prompt lookup, and collects the sequences for which the drafter must draft. */
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

  /**
   * Runs the drafter. If no sequence has needed it for `#idleLimit` steps, tries it on one sequence. Each further
   * consecutive trial doubles the limit.
   */
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
    // If the drafter has read only a part of a backlog, there is no draft yet, and the trial continues in the next
    // step.
    if (!this.#forDrafter.some(hasDraft)) return;
    this.#idleSteps = 0;
    this.#idleLimit = isTrial ? Math.min(this.#idleLimit * 2, longestIdle) : shortestIdle;
  }

  /** Returns the sequence with the shortest backlog in the drafter. */
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
