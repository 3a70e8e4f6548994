// Owns what every kind of step of a layer has in common on a compute thread: how it is run, and what it is lent. Each kind has
// a file of its own: attention-block.ts, feed-forward.ts, experts.ts.
import type { AdapterPass } from "../adapters/pass.ts";
import type { Activation } from "../graph/shape.ts";
import type { KernelExports } from "../load/kernel-exports.ts";
import type { DividedStep, PartitionPlan, Share } from "../plan/partition-plan.ts";
import type { AllGather } from "../threads/all-gather.ts";
import type { ThreadMemory } from "../threads/thread-memory.ts";
import type { ThreadNorms } from "../threads/thread-norms.ts";
import type { ThreadProducts } from "../threads/thread-products.ts";

export interface StepRunner<Step extends DividedStep> {
  /** Of the n tokens of a pass, whose rows are at ThreadMemory.input; what comes of them is added to the hidden state. */
  run(step: Step, n: number): void;
}

/** What a compute thread lends. */
export interface StepParts {
  readonly blueprint: PartitionPlan;
  readonly kernels: KernelExports;
  readonly at: ThreadMemory;
  readonly exchange: AllGather;
  readonly products: ThreadProducts;
  readonly norms: ThreadNorms;
  /** Null where the model takes none. */
  readonly adapters: AdapterPass | null;
}

/** The kernels' numbers of activations. */
export const activationNumbers: Readonly<Record<Activation, number>> = { silu: 0, gelu: 1 };

/** Rows that go into products of one place (adapters/places.ts). */
export interface PlaceInput {
  readonly place: number;
  readonly x: number;
  readonly columns: number;
  readonly n: number;
}

/** Products and what adapters add to them: for matrices that are divided together and share their input. */
export function multiplyPlace(
  { products, adapters }: Pick<StepParts, "products" | "adapters">,
  share: Share,
  { place, x, columns, n }: PlaceInput,
  out: number,
): void {
  adapters?.reduce(place, x);
  products.multiply(share, x, columns, n, out);
  adapters?.exchange();
  adapters?.add(place, share, out);
}
