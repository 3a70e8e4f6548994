import assert from "node:assert/strict";
import { it } from "node:test";
import { resolveConfig } from "../../../../cli/config/config.ts";
import { run } from "../../../../cli/run/run.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";

it("a signal before the models are loaded ends `troupe run` without loading them", async (t) => {
  const flags = { "--input": "hi" };
  const config = resolveConfig({ command: "run", flags, environment: {}, defaultModel: "tiny" });
  t.after(() => {
    process.exitCode = undefined;
    for (const signal of ["SIGINT", "SIGTERM"]) process.removeAllListeners(signal);
  });
  const done: string[] = [];
  await run(config, async () => {
    process.emit("SIGTERM");
    return {
      inference: new FakeInference(),
      defaults: new Map(),
      start: async () => void done.push("started"),
      stop: async () => void done.push("stopped"),
    };
  });
  assert.deepEqual([done, process.exitCode], [["stopped"], 143]);
});
