import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ToolsRig } from "./rig.ts";

describe("a tools process that is killed", () => {
  it("fails the running calls, leaves no process and no folder, and is started again", async () => {
    const rig = new ToolsRig();
    await rig.client.start();
    await rig.python("x = 1");
    const running = [
      rig.python("import time\ntime.sleep(60)"),
      rig.shell(["sleep 60"]),
      rig.shell(["sleep 60 & sleep 60"], "other"),
    ];
    const failed = Promise.all(running.map((call) => assert.rejects(call, { code: "peer_gone" })));
    await sleep(500);
    const before = rig.folders();
    assert.ok(rig.processes().length > 0);
    process.kill(rig.toolsProcess(), "SIGKILL");
    await failed;
    const left = () => rig.folders().filter((name) => before.includes(name));
    for (let i = 0; i < 100 && left().length > 0; i++) await sleep(50);
    assert.deepEqual(left(), []);
    assert.deepEqual(
      rig.processes().filter((line) => before.some((name) => line.includes(name))),
      [],
    );
    let result: unknown = null;
    for (let i = 0; i < 100 && result === null; i++) {
      await sleep(50);
      result = await rig.python("'x' in globals()").then(
        ({ model }) => model.result,
        () => null,
      );
    }
    assert.equal(result, "False");
    await rig.stop();
    assert.deepEqual(readdirSync(rig.workFolder), []);
    assert.deepEqual(rig.processes(), []);
    rig.dispose();
  });

  it("stops although calls run and wait", async () => {
    const rig = new ToolsRig();
    await rig.client.start();
    const calls = [
      rig.python("import time\ntime.sleep(60)"),
      rig.python("1"),
      rig.shell(["sleep 60"], "other"),
      rig.python("1", "new"),
    ].map((call) => call.catch(() => null));
    await sleep(200);
    const startedAt = performance.now();
    await rig.stop();
    assert.ok(performance.now() - startedAt < 3000);
    await Promise.all(calls);
    assert.deepEqual(rig.processes(), []);
    assert.deepEqual(readdirSync(rig.workFolder), []);
    rig.dispose();
  });
});
