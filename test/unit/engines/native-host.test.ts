import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { nativeHost } from "../../../engines/llama/native-host.ts";
import type { NativeProbe } from "../../../engines/llama/probe-place.ts";
import { ServerError } from "../../../runtime/errors.ts";

describe("what a host has for the native engine", () => {
  it("is not asked before it matters, and then once", async () => {
    const asked: NativeProbe[] = [];
    const host = nativeHost(async (probe) => {
      asked.push(probe);
      return { gpu: null };
    });
    assert.deepEqual(asked, []);
    assert.deepEqual(await Promise.all([host.problem(), host.problem()]), [null, null]);
    assert.deepEqual(asked, [{ useGpu: false }]);
  });

  it("is a problem in the words of whatever went wrong", async () => {
    const host = nativeHost(async () => {
      throw new ServerError("peer_gone", '"native libraries" died while it started: killed by SIGSEGV');
    });
    assert.match((await host.problem()) ?? "", /killed by SIGSEGV/);
    assert.equal(await host.gpu(), null);
  });
});
