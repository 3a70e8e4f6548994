// Adapter paths and files: no file outside the root is read, no read blocks, and files that are too large are rejected
// before they are read.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, symlinkSync, truncateSync, utimesSync, writeFileSync } from "node:fs";
import { cp, rename, rm } from "node:fs/promises";
import { join, relative } from "node:path";
import { before, beforeEach, describe, it } from "node:test";
import { setImmediate as turn } from "node:timers/promises";
import { type PrepareOptions, prepareAdapter } from "../../../../engines/files/lora/prepare.ts";
import { SourceFile } from "../../../../engines/files/lora/source-file.ts";
import type { ErrorCode } from "../../../../runtime/errors.ts";
import { writePeftAdapter } from "../../../fixtures/lora/lora.ts";
import {
  optionsFor,
  queryPair,
  refusal,
  temporaryFolder,
  writeHandmade,
  writeSmallModel,
} from "../../../fixtures/lora/lora-prepared.ts";

const folder = temporaryFolder();
const modelPath = join(folder, "model.gguf");
const root = join(folder, "root");
const outside = join(folder, "outside");
const good = join(root, "good");
const options: Omit<PrepareOptions, "source"> = { ...optionsFor(modelPath, join(folder, "prepared")), root };
before(async () => {
  await writeSmallModel(modelPath);
  mkdirSync(root);
  await writeHandmade(good, { tensors: queryPair() });
  await writeHandmade(outside, { tensors: queryPair() });
});

const makePipes = "mkfifo";

async function checkCode(source: string, code: ErrorCode, changes: Partial<typeof options> = {}): Promise<string> {
  const error = await refusal({ ...options, ...changes, source });
  assert.equal(error.code, code, error.message);
  return error.message;
}

describe("the path of an adapter", () => {
  it("may be relative to the root, or any path that leads into it", async () => {
    symlinkSync(good, join(folder, "way-in"));
    const { generation } = await prepareAdapter({ ...options, source: "good" });
    for (const source of [good, "./good/../good", join(folder, "way-in")]) {
      assert.equal((await prepareAdapter({ ...options, source })).generation, generation);
    }
  });

  it("may be relative to the working directory if there is no root", async () => {
    const source = relative(process.cwd(), outside);
    assert.equal((await prepareAdapter({ ...options, root: null, source })).rank, 1);
  });

  it("must be a path", async () => {
    await checkCode("", "invalid_adapter_path");
    await checkCode("good\0", "invalid_adapter_path");
    await checkCode("x".repeat(5000), "invalid_adapter_path");
    symlinkSync("circle", join(root, "circle"));
    await checkCode("circle", "invalid_adapter_path");
  });

  it("must exist", async () => {
    await checkCode("absent", "adapter_path_not_found");
    await checkCode("good/adapter_config.json/deeper", "adapter_path_not_found");
  });

  it("must not leave the root, and the error does not reveal what exists outside", async () => {
    symlinkSync(outside, join(root, "way-out"));
    symlinkSync(join(outside, "absent"), join(root, "way-to-nothing"));
    const links = ["way-out", "way-out/adapter_config.json", "way-out/absent", "way-out/a/b", "way-to-nothing"];
    for (const source of [...links, outside, "../outside", "/etc/passwd", "../absent", "/absent", "..", "/"]) {
      const message = await checkCode(source, "adapter_path_forbidden");
      assert.ok(!message.includes(root), message);
    }
  });

  it("is inside if the root itself is a link", async () => {
    const link = join(folder, "link-to-root");
    symlinkSync(root, link);
    for (const source of ["absent", join(link, "absent"), join(root, "absent")]) {
      await checkCode(source, "adapter_path_not_found", { root: link });
    }
    assert.equal((await prepareAdapter({ ...options, root: link, source: join(link, "good") })).rank, 1);
  });

  it("is not considered inside only because its name begins like the root's", async () => {
    await cp(good, `${root}-beside`, { recursive: true });
    await checkCode(`${root}-beside`, "adapter_path_forbidden");
  });

  it("cannot be checked while the root is missing", async () => {
    await checkCode("good", "adapter_storage_unavailable", { root: join(folder, "absent-root") });
  });
});

describe("the files of an adapter", () => {
  const made = join(root, "made");
  const config = join(made, "adapter_config.json");
  const weights = join(made, "adapter_model.safetensors");
  beforeEach(async () => {
    await rm(made, { recursive: true, force: true });
    await cp(good, made, { recursive: true });
  });

  it("must exist", async () => {
    await rm(weights);
    assert.match(await checkCode("made", "adapter_file_not_found"), /adapter_model\.safetensors/);
    await rm(config);
    assert.match(await checkCode("made", "adapter_file_not_found"), /adapter_config\.json/);
  });

  it("may be links that stay in the root, and no others", async () => {
    await rm(weights);
    symlinkSync(join(good, "adapter_model.safetensors"), weights);
    assert.equal((await prepareAdapter({ ...options, source: "made" })).rank, 1);
    for (const file of [weights, config]) {
      await rm(file);
      symlinkSync(join(outside, file.slice(made.length)), file);
      await checkCode("made", "adapter_file_forbidden");
      assert.equal((await prepareAdapter({ ...options, root: null, source: made })).rank, 1);
    }
  });

  it("must be regular: folders, pipes and devices are not opened", async () => {
    await rm(weights);
    mkdirSync(weights);
    await checkCode("made", "invalid_adapter_file");
    await rm(weights, { recursive: true });
    execFileSync(makePipes, [weights, join(root, "pipe")]);
    await checkCode("made", "invalid_adapter_file");
    await checkCode("pipe", "invalid_adapter_file");
    await checkCode("/dev/zero", "invalid_adapter_file", { root: null });
    await rm(weights);
    symlinkSync("adapter_model.safetensors", weights);
    await checkCode("made", "invalid_adapter_file");
  });

  it("must not be larger than adapters may be: 9 GiB are refused before a byte is read", async () => {
    const limits = { maxRank: 256, maxBytes: 8 * 2 ** 30 };
    for (const file of [weights, join(root, "large.gguf")]) {
      writeFileSync(file, "");
      truncateSync(file, 9 * 2 ** 30);
    }
    const started = performance.now();
    assert.match(await checkCode("made", "lora_adapter_file_too_large", { limits }), /9663676416.*lora_max_bytes/);
    await checkCode("large.gguf", "lora_adapter_file_too_large", { limits });
    assert.ok(performance.now() - started < 1000);
  });

  it("must not have a config of megabytes", async () => {
    truncateSync(config, 1024 * 1024 + 1);
    assert.match(await checkCode("made", "lora_adapter_file_too_large"), /adapter_config\.json/);
  });

  it("must not change until they have been read", async () => {
    const source = join(folder, "changing");
    await writePeftAdapter(source, { modelPath, seed: 1, targets: "all-linear" });
    const place = join(folder, "watched");
    const outcome = refusal({ ...options, root: null, source, folder: place });
    // Once the output folder exists, the source files are open. Their tensors are read in later turns of the event loop.
    const hasBegun = () => existsIn(place);
    while (!hasBegun()) await turn();
    utimesSync(join(source, "adapter_model.safetensors"), 1, 1);
    assert.equal((await outcome).code, "adapter_file_changed");
    assert.deepEqual(readdirSync(place), []);
  });

  it("are rejected if they have changed: longer, shorter, or touched", async () => {
    const limits = { root, maxBytes: 10_000 };
    const changes = [
      () => truncateSync(weights, 10),
      () => writeFileSync(weights, "more", { flag: "a" }),
      () => utimesSync(weights, 1, 1),
    ];
    for (const change of changes) {
      const file = await SourceFile.open(weights, "weights", limits);
      await file.checkUnchanged();
      change();
      await assert.rejects(file.checkUnchanged(), { code: "adapter_file_changed" });
      await file.close();
    }
  });

  it("are read from the opened files, even if their names now refer to others", async () => {
    const file = await SourceFile.open(config, "config", { root, maxBytes: 10_000 });
    await rename(join(good, "adapter_model.safetensors"), config);
    const text = Buffer.alloc(file.size);
    await file.read(text, 0);
    assert.equal(JSON.parse(text.toString()).peft_type, "LORA");
    await file.checkUnchanged();
    await assert.rejects(file.read(Buffer.alloc(1), file.size), { code: "adapter_file_changed" });
    await file.close();
    await rename(config, join(good, "adapter_model.safetensors"));
  });
});

describe("the folder of prepared adapters", () => {
  it("causes a separate error code if it cannot be written", async () => {
    const message = await checkCode("good", "lora_storage_unavailable", { folder: join(modelPath, "prepared") });
    assert.ok(!message.includes(modelPath));
  });
});

function existsIn(place: string): boolean {
  try {
    return readdirSync(place).length > 0;
  } catch {
    return false;
  }
}
