// prepareOnPlace: prepares an adapter on a worker thread, which ends when it is done.
import type { PrepareOptions } from "../../engines/files/lora/prepare.ts";
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { preparerModule } from "../placement.ts";

/** Gibibytes are read, checked, written and hashed. A file system that hangs must not hold the load lock for ever. */
const prepareTimeoutMs = 600_000;
const stopDeadlineMs = 1000;

/** Prepares an adapter in `options.folder`, created if missing. Throws the errors of prepareAdapter, `timeout`, `cancelled`. */
export async function prepareOnPlace(options: PrepareOptions, signal: AbortSignal): Promise<PreparedAdapter> {
  const place = await spawnPlace<PrepareOptions, PreparedAdapter>({
    name: "adapter",
    module: preparerModule,
    init: options,
    carrier: "thread",
    startTimeoutMs: prepareTimeoutMs,
    signal,
  });
  await place.stop(stopDeadlineMs);
  return place.ready;
}
