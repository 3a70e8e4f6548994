// Changes of the quantization of a running server, for tests: waiting for their end, and a cache folder of their own.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

const changeLimitMs = 240_000;

interface ModelEntry {
  readonly quantization?: string;
  readonly requantization?: { readonly ggml_type: string; readonly status: string; readonly error?: string };
}

/** Waits until the change in progress has ended. Returns the entry of the default model. */
export async function changed(url: string): Promise<ModelEntry> {
  const limit = Date.now() + changeLimitMs;
  for (;;) {
    const { data } = (await (await fetch(`${url}/v1/models`)).json()) as { data: ModelEntry[] };
    const [found] = data;
    const status = found?.requantization?.status;
    if (found && (status === "done" || status === "failed")) return found;
    assert.ok(Date.now() < limit, `the change did not end: ${JSON.stringify(found)}`);
    await sleep(50);
  }
}

/** Creates a cache folder for a server, so that converted models do not stay in the user's. */
export function temporaryCache() {
  const folder = mkdtempSync(join(tmpdir(), "troupe-cache-"));
  return {
    folder,
    environment: { XDG_CACHE_HOME: folder },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
