import assert from "node:assert/strict";
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { it } from "node:test";
import { parseArguments } from "../../../../cli/arguments.ts";
import { type ModelConfig, resolveConfig } from "../../../../cli/config/config.ts";
import { writeUqff } from "../../../../cli/tools/uqff/write-uqff.ts";
import { writeSmallCheckpoint } from "../../../fixtures/checkpoints/small-checkpoint.ts";

it("UQFF is not written when the user has ended the command", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-write-uqff-"));
  t.after(() => rmSync(folder, { recursive: true, force: true }));
  const source = join(folder, "source");
  await writeSmallCheckpoint(source);
  const { flags } = parseArguments(["serve", "-m", source]);
  const { models } = resolveConfig({ command: "serve", flags, environment: {}, defaultModel: "" });
  const progress = { update: () => {}, stop: () => {}, signal: AbortSignal.abort() };
  const written = writeUqff(join(source, "config.json"), ["Q8_0"], {
    ...{ output: join(folder, "w.uqff"), baseModel: "small", repoId: null, hasReadme: false, threads: 1 },
    ...{ model: models[0] as ModelConfig, progress, warn: () => {} },
  });
  await assert.rejects(written, { code: "cancelled" });
  assert.equal(existsSync(join(folder, "w-0.uqff")), false);
});
