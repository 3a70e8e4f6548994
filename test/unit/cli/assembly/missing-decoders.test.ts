// Missing decoders: models that accept images or audio, on a machine where the package that decodes them is not installed.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import Module from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { frontOptions } from "../../../../cli/assembly/service-options.ts";
import type { Flags } from "../../../../cli/config/given.ts";
import { createLogger } from "../../../../runtime/log/log.ts";
import { writeTinyAudioProjector } from "../../../fixtures/audio-input/tiny-audio-model.ts";
import { writeTinyProjector } from "../../../fixtures/image-input/tiny-projector.ts";
import { tinyModel } from "../../../fixtures/models/models.ts";
import { resolve } from "../config/resolve.ts";

const log = createLogger({ level: "silent", format: "json" });
const folder = mkdtempSync(join(tmpdir(), "troupe-sharp-"));
const resolver = Module as unknown as { _resolveFilename: (name: string, ...more: unknown[]) => string };
const { _resolveFilename: usual } = resolver;

const modelsOf = (flags: Flags) =>
  frontOptions(resolve({ flags: { "--engine": "wasm", ...flags } }), log, { update: () => {}, stop: () => {} });

describe("models that accept audio, without the package audio-decode", () => {
  it("are refused with the command that installs it, before the model is downloaded", async () => {
    const mmproj = join(mkdtempSync(join(tmpdir(), "troupe-audio-")), "audio.gguf");
    await writeTinyAudioProjector(mmproj, "gemma4a", 1);
    resolver._resolveFilename = (name, ...more) => {
      if (name !== "audio-decode") return usual.call(Module, name, ...more);
      throw Object.assign(new Error("Cannot find module 'audio-decode'"), { code: "MODULE_NOT_FOUND" });
    };
    try {
      await assert.rejects(modelsOf({ "--model-id": ["nobody/no-such-model"], "--mmproj": mmproj }), {
        code: "config_invalid",
        param: "mmproj",
        message: /^mmproj: audio files need the package audio-decode.*npm install audio-decode@/,
      });
    } finally {
      resolver._resolveFilename = usual;
    }
  });
});

describe("models that accept images, without the package sharp", () => {
  before(() => {
    resolver._resolveFilename = (name, ...more) => {
      if (name !== "sharp") return usual.call(Module, name, ...more);
      throw Object.assign(new Error("Cannot find module 'sharp'"), { code: "MODULE_NOT_FOUND" });
    };
  });
  after(() => {
    resolver._resolveFilename = usual;
    rmSync(folder, { recursive: true });
  });

  it("are refused with the command that installs it, before the model is downloaded", async () => {
    await assert.rejects(modelsOf({ "--model-id": ["nobody/no-such-model"], "--kind": "multimodal" }), {
      code: "config_invalid",
      param: "kind",
      message: /^kind multimodal needs the package sharp, which decodes images: npm install sharp@\d+\.\d+\.\d+/,
    });
    const mmproj = join(folder, "mmproj.gguf");
    await writeTinyProjector(mmproj, { projector: "idefics3", seed: 1, length: 128 });
    await assert.rejects(modelsOf({ "--model-id": ["nobody/no-such-model"], "--mmproj": mmproj }), {
      code: "config_invalid",
      param: "mmproj",
      message: /^mmproj needs the package sharp, which decodes images: npm install sharp@/,
    });
  });

  it("are served if they accept only audio or text", async () => {
    const mmproj = join(folder, "audio.gguf");
    await writeTinyAudioProjector(mmproj, "ultravox", 1);
    const model = await tinyModel();
    const heard = await modelsOf({ "--model-id": [model], "--mmproj": mmproj });
    assert.ok(heard.models[0]?.spec.audio);
    assert.equal((await modelsOf({ "--model-id": [model] })).models.length, 1);
  });
});
