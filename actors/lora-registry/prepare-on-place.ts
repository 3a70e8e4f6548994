// Owns preparing an adapter off the main thread: a worker place that does it as its start, and then ends.
import type { PrepareOptions } from "../../engines/files/lora/prepare.ts";
import type { PreparedAdapter } from "../../engines/files/lora/prepared-adapter.ts";
import { spawnPlace } from "../../runtime/thread/place.ts";
import { preparerModule } from "../placement.ts";

/** Gibibytes are read, checked, written and hashed; a file system that hangs must not hold the gate for ever. */
const prepareTimeoutMs = 600_000;
const stopDeadlineMs = 1000;

/** Makes an adapter ready in the folder, which is made where it is missing. Throws as prepareAdapter does, `timeout`, `cancelled`. */
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
