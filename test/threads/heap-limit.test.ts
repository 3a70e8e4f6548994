import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { it } from "node:test";
import { promisify } from "node:util";

// Runs in a child process, because a limit of the address space applies to a whole process.
const program = `
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { hasReachedHeapLimit } from "${new URL("../../runtime/thread/heap-limit.js", import.meta.url)}";
const error = Object.assign(new Error("out of memory"), { code: "ERR_WORKER_OUT_OF_MEMORY" });
const before = hasReachedHeapLimit(error, 1024);
const [, kibibytes] = /VmSize:\\s+(\\d+)/.exec(readFileSync("/proc/self/status", "latin1"));
execFileSync("prlimit", ["--pid", String(process.pid), "--as=" + (Number(kibibytes) * 1024 + 512 * 2 ** 20) + ":"]);
console.log(before, hasReachedHeapLimit(error, 1024), hasReachedHeapLimit(error, 16), hasReachedHeapLimit(new Error(), 16));
`;

it("a thread has not reached its heap limit if its process has no memory left", async () => {
  const { stdout } = await promisify(execFile)(process.execPath, ["--input-type=module", "-e", program]);
  assert.equal(stdout, "true false true false\n");
});
