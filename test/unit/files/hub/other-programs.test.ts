import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { after, before, describe, it } from "node:test";
import { listForeignModels } from "../../../../engines/files/hub/other-programs.ts";
import { resolveModel } from "../../../../engines/files/hub/resolve-model.ts";

const home = mkdtempSync(join(tmpdir(), "troupe-home-"));
const earlierHome = process.env.HOME;
const digest = `sha256:${"ab".repeat(32)}`;
const weights = Buffer.from("GGUF and more");
const modelLayer = { mediaType: "application/vnd.ollama.image.model", digest };

function put(path: string, content: string | Buffer): string {
  const absolute = join(home, path);
  mkdirSync(dirname(absolute), { recursive: true });
  writeFileSync(absolute, content);
  return absolute;
}

function putManifest(path: string, layers: unknown): void {
  put(`.ollama/models/manifests/registry.example/${path}`, JSON.stringify({ layers }));
}

let blob = "";
let studio = "";
before(() => {
  process.env.HOME = home;
  blob = put(`.ollama/models/blobs/${digest.replace(":", "-")}`, weights);
  putManifest("library/llama3/latest", [{ mediaType: "application/vnd.ollama.image.template" }, modelLayer]);
  putManifest("acme/tiny/q4", [modelLayer]);
  putManifest("library/outside/latest", [{ ...modelLayer, digest: "sha256:../../../../etc/passwd" }]);
  putManifest("library/gone/latest", [{ ...modelLayer, digest: `sha256:${"cd".repeat(32)}` }]);
  put(".ollama/models/manifests/registry.example/library/broken/latest", "{");
  studio = put(".lmstudio/models/acme/tiny-GGUF/tiny-Q4_0.gguf", weights);
  put(".lmstudio/models/acme/tiny-GGUF/mmproj-tiny.gguf", weights);
  put(".lmstudio/models/acme/two-GGUF/two-Q4_0.gguf", weights);
  put(".lmstudio/models/acme/two-GGUF/two-Q8_0.gguf", weights);
});
after(() => {
  if (earlierHome === undefined) delete process.env.HOME;
  else process.env.HOME = earlierHome;
  rmSync(home, { recursive: true, force: true });
});

async function resolved(source: string): Promise<string> {
  return (await resolveModel(source, { environment: {} })).path;
}

describe("models of other programs", () => {
  it("are listed with their sizes, without unreadable ones and projectors", async () => {
    const bytes = weights.length;
    assert.deepEqual(await listForeignModels({}), [
      { source: "lmstudio:acme/tiny-GGUF/tiny-Q4_0.gguf", bytes },
      { source: "lmstudio:acme/two-GGUF/two-Q4_0.gguf", bytes },
      { source: "lmstudio:acme/two-GGUF/two-Q8_0.gguf", bytes },
      { source: "ollama:acme/tiny:q4", bytes },
      { source: "ollama:llama3:latest", bytes },
    ]);
  });

  it("are resolved to their files", async () => {
    for (const source of ["ollama:llama3", "ollama:llama3:latest", "ollama:acme/tiny:q4"]) {
      assert.equal(await resolved(source), blob, source);
    }
    assert.equal(await resolved("lmstudio:acme/tiny-GGUF/tiny-Q4_0.gguf"), studio);
    assert.match(await resolved("lmstudio:acme/two-GGUF/two-Q8_0.gguf"), /two-Q8_0\.gguf$/);
  });

  it("are refused if they are not there, with the nearest name", async () => {
    const refused = (source: string, message: RegExp) =>
      assert.rejects(resolved(source), { name: "ServerError", code: "model_file_invalid", message });
    await refused("ollama:lama3:latest", /^no model "ollama:lama3:latest"; did you mean "ollama:llama3:latest"\?/);
    await refused("ollama:outside", /^no model "ollama:outside"/);
    await refused("ollama:gone", /^no model "ollama:gone"/);
    await refused("lmstudio:../../etc/x", /^no model/);
    await refused("lmstudio:acme/two-GGUF", /two-Q4_0\.gguf/);
  });

  it("are found in OLLAMA_MODELS instead of the home folder", async () => {
    assert.deepEqual(
      (await listForeignModels({ OLLAMA_MODELS: join(home, "elsewhere") })).filter(({ source }) =>
        source.startsWith("ollama:"),
      ),
      [],
    );
  });
});
