import assert from "node:assert/strict";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it, type TestContext } from "node:test";
import { parseArguments } from "../../../../cli/arguments.ts";
import { writeUqff } from "../../../../cli/commands/uqff/write-uqff.ts";
import { type ModelConfig, resolveConfig } from "../../../../cli/config/config.ts";
import { writeSmallCheckpoint } from "../../../fixtures/checkpoints/small-checkpoint.ts";

/** Writes a small checkpoint, and starts its conversion to UQFF in a folder. */
async function start(
  t: TestContext,
  levels: readonly string[],
  signal: AbortSignal,
  files: readonly string[] = [],
  other = "",
  words: readonly string[] = [],
) {
  const folder = mkdtempSync(join(tmpdir(), "troupe-write-uqff-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const [source, output] = [join(folder, "source"), join(folder, "output")];
  await writeSmallCheckpoint(source);
  for (const name of files) writeFileSync(join(source, name), `{"name":"${name}"}`);
  mkdirSync(output);
  if (other !== "") writeFileSync(join(output, "config.json"), other);
  const { flags } = parseArguments(["serve", "-m", source, ...words]);
  const { models } = resolveConfig({ command: "serve", flags, environment: {}, defaultModel: "" });
  const progress = { update: () => {}, stop: () => {}, signal };
  const written = writeUqff(join(source, "config.json"), levels, {
    ...{ output: join(output, "w.uqff"), baseModel: "small", repoId: null, hasReadme: false, threads: 1 },
    ...{ model: models[0] as ModelConfig, progress, warn: () => {} },
  });
  return { output, written };
}

it("UQFF is not written when the user has interrupted the command", async (t) => {
  const { output, written } = await start(t, ["Q8_0"], AbortSignal.abort());
  await assert.rejects(written, { code: "cancelled" });
  assert.equal(existsSync(join(output, "w-0.uqff")), false);
});

it("UQFF of an embedding model has its prompts and markers in files next to it", async (t) => {
  const files = ["config_sentence_transformers.json", "artifact.metadata", "modules.json"];
  const { output, written } = await start(t, [], new AbortController().signal, files);
  await written;
  for (const name of files) assert.equal(readFileSync(join(output, name), "utf8"), `{"name":"${name}"}`);
});

it("UQFF is not written into a folder with a config.json of something else", async (t) => {
  const other = '{"name":"my-project"}';
  const { output, written } = await start(t, [], new AbortController().signal, [], other);
  await assert.rejects(written, { code: "config_invalid", message: /whose config\.json is not of this type/ });
  assert.equal(readFileSync(join(output, "config.json"), "utf8"), other);
  // The output of an earlier run is replaced.
  const again = await start(t, [], new AbortController().signal, [], '{"model_type":"llama"}');
  await again.written;
});

it("UQFF of a model with another type or class has a config.json that names them, and is replaced by a second run", async (t) => {
  const { signal } = new AbortController();
  const changes = ["--hf-overrides", '{"model_type":"other"}', "--arch", "qwen2"];
  const { output, written } = await start(t, [], signal, [], '{"model_type":"other"}', changes);
  await written;
  const { model_type, architectures } = JSON.parse(readFileSync(join(output, "config.json"), "utf8"));
  assert.deepEqual([model_type, architectures], ["other", ["Qwen2ForCausalLM"]]);
});
