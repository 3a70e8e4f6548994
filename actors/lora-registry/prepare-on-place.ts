// prepareOnPlace: prepares an adapter on a worker thread that ends afterwards.
import type { PrepareOptions } from "../../engines/files/lora/prepare.ts";
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { preparerModule } from "../placement.ts";

/**
 * Timeout of a preparation in ms. Long, because gibibytes are read, checked, written and hashed. Finite, so that a hung file
 * system cannot block all further loads.
 */
const prepareTimeoutMs = 600_000;
const stopDeadlineMs = 1000;

/** Prepares an adapter in `options.folder`, which is created if missing. Throws the errors of prepareAdapter, `timeout`, `cancelled`. */
export async function prepareOnPlace(options: PrepareOptions, signal: AbortSignal): Promise<PreparedAdapter> {
  const place = await spawnPlace<PrepareOptions, PreparedAdapter>({
    name: "adapter",
    module: preparerModule,
    init: options,
    kind: "thread",
    startTimeoutMs: prepareTimeoutMs,
    signal,
  });
  await place.stop(stopDeadlineMs);
  return place.ready;
}
