import assert from "node:assert/strict";
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { readMlcFolder } from "../../../engines/files/mlc-folder.ts";
import { createApp } from "../../../http/app.ts";
import { FakeInference } from "../../fixtures/fakes/fake-inference.ts";
import { request } from "../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../fixtures/http-server.ts";
import { emptyLibrary, writeMlcFolder } from "../../fixtures/mlc/mlc-folder.ts";

const shard = "params_shard_0.bin";
const shardBytes = 16 * 16 * 4;

describe("folder of a model for WebGPU", () => {
  const parent = mkdtempSync(join(tmpdir(), "troupe-mlc-"));
  let count = 0;

  function writeFolder(): string {
    const folder = join(parent, `model-${count++}`);
    const tokenizer = join(parent, "tokenizer.json");
    writeFileSync(tokenizer, "{}");
    const tensors = [{ name: "embedding.q_weight", shape: [16, 16], dtype: "uint32" }];
    writeMlcFolder(folder, { library: emptyLibrary, tokenizer, tensors, quantization: "q4f32_1", vocabSize: 16 });
    return folder;
  }

  after(() => rmSync(parent, { recursive: true }));

  it("has the files that a browser needs, and no others", async () => {
    const folder = writeFolder();
    writeFileSync(join(folder, "README.md"), "not needed");
    const { name, files } = await readMlcFolder(folder);
    assert.equal(join(parent, name), folder);
    assert.deepEqual(
      files.map((file) => file.name),
      ["mlc-chat-config.json", "ndarray-cache.json", "tokenizer.json", "model-webgpu.wasm", shard],
    );
    assert.equal(files.at(-1)?.bytes, shardBytes);
  });

  const faults: readonly [what: string, break_: (folder: string) => void, message: RegExp][] = [
    [
      "without configuration",
      (f) => rmSync(join(f, "mlc-chat-config.json")),
      /expected mlc-chat-config\.json in .*model-/,
    ],
    ["without weights", (f) => rmSync(join(f, shard)), /params_shard_0\.bin is missing: download the model again/],
    [
      "with short weights",
      (f) => truncateSync(join(f, shard), 100),
      /has 100 bytes; expected 1024: download the file again/,
    ],
    ["without tokenizer", (f) => rmSync(join(f, "tokenizer.json")), /expected tokenizer\.json in/],
    ["without library", (f) => rmSync(join(f, "model-webgpu.wasm")), /expected one \.wasm file, .*; got 0/],
    ["with two libraries", (f) => writeFileSync(join(f, "b.wasm"), ""), /expected one \.wasm file, .*; got 2/],
    ["with no JSON", (f) => writeFileSync(join(f, "ndarray-cache.json"), "{"), /ndarray-cache\.json is no JSON/],
    [
      "with a path for weights",
      (f) => writeRecords(f, "../secret"),
      /dataPath is "\.\.\/secret"; expected a file name/,
    ],
    [
      "with no weights listed",
      (f) => writeFileSync(join(f, "ndarray-cache.json"), '{"records":[]}'),
      /records has no files/,
    ],
  ];
  for (const [what, damage, message] of faults) {
    it(`is refused ${what}`, async () => {
      const folder = writeFolder();
      damage(folder);
      await assert.rejects(readMlcFolder(folder), (error: Error) => message.test(error.message));
    });
  }

  it("is refused if there is none", async () => {
    await assert.rejects(readMlcFolder(join(parent, "none")), /cannot be read as a folder of a model for WebGPU/);
  });

  describe("GET /v1/web_models", () => {
    let get: (path: string) => ReturnType<typeof request>;
    before(async () => {
      const webModels = [await readMlcFolder(writeFolder())];
      const app = createApp({ inference: new FakeInference(), webModels, log: recordingLog() });
      get = (path) => request(app, "GET", path);
    });

    it("lists the models, and sends their files", async () => {
      const { data } = JSON.parse((await get("/v1/web_models")).body);
      assert.equal(data.length, 1);
      const [{ id, bytes, files }] = data;
      assert.equal(
        bytes,
        files.reduce((sum: number, file: { bytes: number }) => sum + file.bytes, 0),
      );
      const config = await get(`/v1/web_models/${id}/files/mlc-chat-config.json`);
      assert.equal(JSON.parse(config.body).quantization, "q4f32_1");
      assert.equal(config.headers["x-file-bytes"], String(files[0].bytes));
    });

    it("sends nothing else of the disk", async () => {
      const { data } = JSON.parse((await get("/v1/web_models")).body);
      const base = `/v1/web_models/${data[0].id}/files`;
      for (const path of [
        `${base}/..%2Ftokenizer.json`,
        `${base}/%2Fetc%2Fpasswd`,
        `${base}/README.md`,
        "/v1/web_models/x/files/y",
      ]) {
        assert.equal((await get(path)).status, 404, path);
      }
    });

    it("lists none by default", async () => {
      const app = createApp({ inference: new FakeInference(), log: recordingLog() });
      assert.deepEqual(JSON.parse((await request(app, "GET", "/v1/web_models")).body).data, []);
    });
  });
});

function writeRecords(folder: string, dataPath: string): void {
  writeFileSync(join(folder, "ndarray-cache.json"), JSON.stringify({ records: [{ dataPath, nbytes: 1 }] }));
}
