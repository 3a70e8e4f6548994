// Requantization helpers for tests of a running server: waiting for the end of a change, and a separate cache folder.
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

/** Waits until the current change has ended. Returns the default model's entry in the model list. */
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

/** Creates a cache folder for a server, so that converted models do not stay in the user's cache. */
export function temporaryCache() {
  const folder = mkdtempSync(join(tmpdir(), "troupe-cache-"));
  return {
    folder,
    environment: { XDG_CACHE_HOME: folder },
    remove: () => rmSync(folder, { recursive: true, force: true }),
  };
}
