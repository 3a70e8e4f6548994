import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, it } from "node:test";
import { DownloadedModels } from "../../../../../cli/assembly/models/downloaded-models.ts";
import type { ModelBuilder } from "../../../../../cli/assembly/models/model-builder.ts";
import { recordingLog } from "../../../../fixtures/http-server.ts";

const name = "acme/tiny-GGUF:f16";

/** Downloads at once; a removed model runs its last requests until the test calls `drain`. */
function createLibrary(home: string) {
  const path = join(home, "hf/hub/models--acme--tiny-GGUF/snapshots/1/tiny-F16.gguf");
  const entries: { id: string; path: string; isDownloaded: boolean }[] = [];
  let drain = () => {};
  const front = {
    models: () => entries,
    addModel: (served: (typeof entries)[number]) => void entries.push(served),
    removeModel: async () => {
      entries.pop();
      await new Promise<void>((resolve) => {
        drain = resolve;
      });
    },
  };
  const builder = {
    files: new Map([[name, [path]]]),
    forget: () => builder.files.clear(),
    build: async () => {
      mkdirSync(join(path, ".."), { recursive: true });
      writeFileSync(path, "weights");
      return { id: name, path };
    },
  };
  const config = { command: "serve", models: [], troupe: { maxModelDownloads: 2 } };
  const library = new DownloadedModels({
    config: config as never,
    builder: builder as unknown as ModelBuilder,
    front: front as never,
    log: recordingLog() as never,
  });
  return { library, path, drain: () => drain(), served: () => entries.length };
}

describe("a downloaded model that is removed while requests run on it", () => {
  const environment = { ...process.env };
  let home = "";

  beforeEach(() => {
    home = mkdtempSync(join(tmpdir(), "troupe-downloaded-"));
    Object.assign(process.env, { XDG_CACHE_HOME: home, HF_HOME: join(home, "hf") });
  });
  afterEach(() => {
    process.env = { ...environment };
    rmSync(home, { recursive: true });
  });

  const pull = (library: DownloadedModels, signal = new AbortController().signal) =>
    library.download(name, signal, () => {});
  const pause = () => new Promise((resolve) => setTimeout(resolve, 20));

  it("is served again only when these have ended, and keeps its files", async () => {
    const { library, path, drain, served } = createLibrary(home);
    await pull(library);
    const removed = library.remove(name);
    const again = pull(library);
    await pause();
    assert.equal(served(), 0, "the requests would be cut off by a second process of the model");
    drain();
    await Promise.all([removed, again]);
    assert.deepEqual([served(), existsSync(path)], [1, true]);
  });

  it("does not delay the server's stop, nor a client that no longer wants it", async () => {
    const { library, drain, served } = createLibrary(home);
    await pull(library);
    const removed = library.remove(name);
    const leaving = new AbortController();
    const left = assert.rejects(pull(library, leaving.signal), { code: "cancelled" });
    leaving.abort();
    await left;
    const stopped = assert.rejects(pull(library), { code: "cancelled" });
    await pause();
    await library.stop();
    await stopped;
    assert.equal(served(), 0);
    drain();
    await removed;
  });
});
