// Step runner: the interface that runs one kind of layer step on a compute thread, and the parts of the thread that all
// kinds use. Each kind has its own file: attention-block.ts, feed-forward.ts, experts.ts.
import type { AdapterPass } from "../adapters/pass.ts";
import type { Activation } from "../graph/shape.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import type { DividedStep, PartitionPlan, Share } from "../plan/partition-plan.ts";
import type { AllGather } from "../threads/all-gather.ts";
import type { ThreadMemory } from "../threads/thread-memory.ts";
import type { ThreadNorms } from "../threads/thread-norms.ts";
import type { ThreadProducts } from "../threads/thread-products.ts";

export interface StepRunner<Step extends DividedStep> {
  /** Runs the step on n tokens whose inputs are at ThreadMemory.input, and adds the result to the hidden state. */
  run(step: Step, n: number): void;
}

/** Parts of the compute thread that steps use. */
export interface StepParts {
  readonly plan: PartitionPlan;
  readonly kernels: KernelExports;
  readonly at: ThreadMemory;
  readonly allGather: AllGather;
  readonly products: ThreadProducts;
  readonly norms: ThreadNorms;
  /** Computes the LoRA adapters' part of a pass; null if the model cannot have adapters. */
  readonly adapters: AdapterPass | null;
}

/** Numbers by which the kernels identify activation functions. */
export const activationNumbers: Readonly<Record<Activation, number>> = { silu: 0, gelu: 1, quickGelu: 2 };

/**
 * Input rows of an adapter site: a group of matrices with the same input, which LoRA adapters can change
 * (adapters/sites.ts).
 */
export interface SiteInput {
  readonly site: number;
  readonly x: number;
  readonly columns: number;
  readonly n: number;
}

/**
 * Multiplies this thread's share (rows) of matrices with the same input by the input, and adds the products of the LoRA
 * adapters.
 */
export function multiplyAtSite(
  { products, adapters }: Pick<StepParts, "products" | "adapters">,
  share: Share,
  { site, x, columns, n }: SiteInput,
  out: number,
): void {
  adapters?.reduce(site, x);
  products.multiply(share, x, columns, n, out);
  adapters?.gather();
  adapters?.add(site, share, out);
}

/**
 * Multiplies n rows at x by a matrix on all threads, applies the activation unless it is null, and writes the joined
 * products to ThreadMemory.joined.
 */
export function multiplyJoined(
  { products, kernels }: Pick<StepParts, "products" | "kernels">,
  shares: readonly Share[],
  { x, columns, n }: Pick<SiteInput, "x" | "columns" | "n">,
  activation: Activation | null,
): void {
  const own = products.own(shares);
  const { ownSlab } = products;
  products.multiply(own, x, columns, n, ownSlab);
  if (activation !== null) kernels.activate(activationNumbers[activation], ownSlab, ownSlab, n * own.stride);
  products.gather(shares, n);
  products.join(shares, n);
}
