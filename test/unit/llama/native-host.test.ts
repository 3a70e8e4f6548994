import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { nativeHost } from "../../../engines/llama/native/native-host.ts";
import type { NativeProbe } from "../../../engines/llama/native/probe-place.ts";
import { ServerError } from "../../../runtime/errors.ts";

describe("the host's facts for the native engine", () => {
  it("are read only when needed, and then once", async () => {
    const asked: NativeProbe[] = [];
    const host = nativeHost({
      probe: async (probe) => {
        asked.push(probe);
        return { gpu: null };
      },
    });
    assert.deepEqual(asked, []);
    assert.deepEqual(await Promise.all([host.problem(), host.problem()]), [null, null]);
    assert.deepEqual(asked, [{ useGpu: false }]);
  });

  it("include a problem in the words of the original error", async () => {
    const host = nativeHost({
      mayHaveGpu: () => true,
      probe: async () => {
        throw new ServerError("peer_gone", '"native libraries" died while it started: killed by SIGSEGV');
      },
    });
    assert.match((await host.problem()) ?? "", /killed by SIGSEGV/);
    assert.equal(await host.gpu(), null);
  });

  it("tell how to install the GPU libraries, only if there is a GPU and they are missing", async () => {
    const adviceOf = (mayHaveGpu: boolean, hasGpuPackage: boolean) =>
      nativeHost({ mayHaveGpu: () => mayHaveGpu, hasGpuPackage }).gpuAdvice;
    assert.match(adviceOf(true, false) ?? "", /npm install node-llama-cpp@\d/);
    assert.deepEqual([adviceOf(true, true), adviceOf(false, false)], [null, null]);
    const host = nativeHost({
      mayHaveGpu: () => true,
      hasGpuPackage: false,
      probe: () => assert.fail("without the libraries there is nothing to ask"),
    });
    assert.equal(await host.gpu(), null);
  });

  it("include the free memory, which is read again after a while, once for all callers", async () => {
    let now = 0;
    let probes = 0;
    const host = nativeHost({
      mayHaveGpu: () => true,
      now: () => now,
      probe: async () => {
        probes++;
        if (probes === 3) throw new ServerError("peer_gone", "the driver is busy");
        return { gpu: "cuda", devices: [{ name: "one", totalBytes: 100, availableBytes: 100 - probes }] };
      },
    });
    const free = async () => (await host.devices()).map(({ availableBytes }) => availableBytes);
    assert.equal(await host.gpu(), "cuda");
    assert.deepEqual(await free(), [99]);
    now = 20_000;
    assert.deepEqual(await Promise.all([free(), free()]), [[98], [98]]);
    now = 40_000;
    assert.deepEqual(await free(), [99], "a failure takes no device away");
    assert.equal(probes, 3);
  });
});
