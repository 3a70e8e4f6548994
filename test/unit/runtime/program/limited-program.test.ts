// Limited programs: what happens if the system cannot start one.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { describe, it } from "node:test";
import { runLimitedCommand } from "../../../../runtime/program/limited-program.ts";

const limits = { timeMs: 10_000, cpuSeconds: 10, memoryBytes: 2 ** 30, outputBytes: 1000 };
const extension = import.meta.url.slice(import.meta.url.lastIndexOf("."));
const module = new URL(`../../../../runtime/program/limited-program${extension}`, import.meta.url).href;

describe("a limited command", () => {
  it("reports a program that does not exist", async () => {
    const { output, failure } = await runLimitedCommand(["/no/such/program"], { limits });
    assert.equal(output.length, 0);
    assert.match(failure ?? "", /ENOENT|not found/);
  });

  it("reports that no file descriptor is free, and the process that asked for it goes on", () => {
    const script = `
      import { closeSync, openSync } from "node:fs";
      import { runLimitedCommand } from ${JSON.stringify(module)};
      const run = () => runLimitedCommand(["/bin/true"], { limits: ${JSON.stringify(limits)} });
      await run();
      const opened = [];
      try {
        for (;;) opened.push(openSync("/dev/null"));
      } catch {}
      const { failure } = await run();
      for (const descriptor of opened) closeSync(descriptor);
      process.stdout.write(JSON.stringify([failure, (await run()).failure]));
    `;
    const shell = ["-c", 'ulimit -n 64; exec "$@"', "sh", process.execPath, "--input-type=module", "-e", script];
    const { stdout, stderr, status } = spawnSync("/bin/sh", shell, { encoding: "utf8" });
    assert.equal(status, 0, stderr);
    const [full, later] = JSON.parse(stdout) as (string | null)[];
    assert.match(full ?? "", /EMFILE/);
    assert.equal(later, null);
  });
});
