// Request adapter: selects the adapter for a request: the requested adapter, the model's fixed adapter, or none.
import type { AdapterSelector } from "../../engines/generation.ts";
import { ServerError } from "../../runtime/errors.ts";
import type { AdapterLease, ModelAdapters } from "../lora-registry/model-adapters.ts";
import { ownRunAdapter, type ServedModel } from "../models/served-model.ts";

const ownLease: AdapterLease = { adapter: ownRunAdapter, release: () => {} };

/** Returns a lease on the adapter; null = use the base model. Throws invalid_value with the param `adapter`. */
export function leaseFor(
  { id, ownAdapter, spec }: ServedModel,
  adapters: ModelAdapters | null,
  selector: AdapterSelector | null,
): AdapterLease | null {
  if (selector === null) return ownAdapter === null ? null : ownLease;
  if (adapters !== null) return adapters.lease(selector);
  const why =
    ownAdapter !== null || (spec.mixture ?? null) !== null
      ? "has adapters of its own, and takes no others"
      : "takes no adapters (enable_lora)";
  throw new ServerError("invalid_value", `model "${id}" ${why}; leave out adapter`, { param: "adapter" });
}
