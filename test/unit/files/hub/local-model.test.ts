import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { resolveModel } from "../../../../engines/files/hub/resolve-model.ts";

const base = mkdtempSync(join(tmpdir(), "local-model-"));
const model = "GGUF and weights";
const resolve = (source: string) => resolveModel(source);

async function assertRefused(source: string, code: string, message: string | RegExp): Promise<void> {
  await assert.rejects(resolve(source), { name: "ServerError", code, message });
}

after(() => rmSync(base, { recursive: true, force: true }));

describe("a model given as a path", () => {
  const path = join(base, "tiny-model.gguf");
  writeFileSync(path, model);

  it("is the file itself", async () => {
    assert.deepEqual(await resolve(path), { path });
  });

  it("is explained when nothing is there, with the nearest name", async () => {
    await assertRefused(
      join(base, "tiny-modle.gguf"),
      "model_file_invalid",
      /^no file at ".*tiny-modle\.gguf"; did you mean "tiny-model\.gguf"\?/,
    );
    await assertRefused(join(base, "other"), "model_file_invalid", /; there is "tiny-model\.gguf";/);
    await assertRefused(
      "organisation",
      "model_file_invalid",
      /^no file at .*a model is a path of a \.gguf file or of a folder with safetensors, owner\/name\[:FILE\] on the hub, a name that `troupe models` lists, or pypi:/,
    );
  });

  it("is refused when it is no GGUF file", async () => {
    writeFileSync(join(base, "short.bin"), "GG");
    await assertRefused(
      join(base, "short.bin"),
      "model_file_invalid",
      /expects a GGUF file, which starts with "GGUF"; this one starts with "GG"$/,
    );
  });
});

describe("a model given as a folder", () => {
  const folder = join(base, "folder");
  const fill = (...names: string[]) => {
    rmSync(folder, { recursive: true, force: true });
    mkdirSync(folder);
    for (const name of names) writeFileSync(join(folder, name), model);
  };

  it("may be a checkpoint: its config.json stands for it", async () => {
    fill("config.json", "model.safetensors", "tokenizer.json");
    const path = join(folder, "config.json");
    assert.deepEqual(await resolve(folder), { path });
    assert.deepEqual(await resolve(path), { path });
    fill("config.json", "model.safetensors", "a-Q4_0.gguf");
    assert.deepEqual(await resolve(folder), { path: join(folder, "a-Q4_0.gguf") });
    fill("config.json", "pytorch_model.bin");
    await assertRefused(
      folder,
      "model_file_invalid",
      /its weights are in another format; GGUF files are read, and safetensors/,
    );
  });

  it("is the checkpoint beside a GGUF file if the format says so", async () => {
    fill("config.json", "model.safetensors", "a-Q4_0.gguf");
    assert.deepEqual(await resolveModel(folder, { format: "plain" }), { path: join(folder, "config.json") });
  });

  it("has the preferred quantisation, among several", async () => {
    fill("a-Q4_0.gguf", "a-Q8_0.gguf", "a-F16.gguf");
    const preferring = (...quantisations: string[]) => resolveModel(folder, { quantisations });
    assert.deepEqual(await preferring("Q8_0", "F16"), { path: join(folder, "a-Q8_0.gguf") });
    assert.deepEqual(await preferring("Q6_K", "F16"), { path: join(folder, "a-F16.gguf") });
  });

  it("has the largest model that fits, even if a link beside it leads nowhere", async () => {
    fill("a-Q4_0.gguf");
    symlinkSync("nowhere", join(folder, "b-Q8_0.gguf"));
    assert.deepEqual(await resolveModel(folder, { roomBytes: 1000 }), { path: join(folder, "a-Q4_0.gguf") });
  });

  it("is the one model in it, whatever else is there", async () => {
    fill("a-Q4_0.gguf", "mmproj-F16.gguf", "README.md");
    assert.deepEqual(await resolve(folder), { path: join(folder, "a-Q4_0.gguf") });
  });

  it("is the first shard if the model has several, whichever shard is given", async () => {
    fill("a-00001-of-00002.gguf", "a-00002-of-00002.gguf");
    const path = join(folder, "a-00001-of-00002.gguf");
    assert.deepEqual(await resolve(folder), { path });
    assert.deepEqual(await resolve(join(folder, "a-00002-of-00002.gguf")), { path });
    rmSync(path);
    for (const source of [folder, join(folder, "a-00002-of-00002.gguf")]) {
      await assertRefused(source, "model_file_invalid", /one of 2 shards; .*missing: "a-00001-of-00002\.gguf"$/);
    }
  });

  it("must contain one model, unless a file is specified", async () => {
    fill("a-Q4_K_M.gguf", "a-Q8_0.gguf");
    await assertRefused(
      folder,
      "model_file_invalid",
      /^there are several models in the directory ".*"; name one of them: "a-Q4_K_M\.gguf", "a-Q8_0\.gguf"$/,
    );
    for (const quantizedFile of ["a-Q8_0.gguf", "q8_0"]) {
      const { path } = await resolveModel(folder, { quantizedFile });
      assert.equal(path, join(folder, "a-Q8_0.gguf"));
    }
    fill("model.safetensors");
    await assertRefused(folder, "model_file_invalid", /no GGUF model in the directory .* another format/);
  });
});

it("a named pipe is refused, because it would be read for ever", async () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-pipe-"));
  try {
    const path = join(folder, "model.gguf");
    execFileSync("sh", ["-c", `mkfifo '${path}'`]);
    await assert.rejects(resolveModel(path), { code: "model_file_invalid", message: /is not a regular file/ });
  } finally {
    rmSync(folder, { recursive: true });
  }
});
