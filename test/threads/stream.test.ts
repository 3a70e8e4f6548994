// Streams from a writer in another thread or process to a reader in this one: flow control, cancellation, and what happens
// when the writer's thread or process ends.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { StreamHub } from "../../runtime/actor/stream.ts";
import { ActorSystem } from "../../runtime/actor/system.ts";
import { type PlaceKind, spawnPlace } from "../../runtime/thread/place.ts";
import { type Probe, type ProbeInit, type ProbeReady, streamOptions } from "../fixtures/actors/probe-place.ts";

async function openProbe(kind: PlaceKind) {
  const place = await spawnPlace<ProbeInit, ProbeReady>({
    name: "den",
    module: new URL("../fixtures/actors/probe-place.js", import.meta.url),
    init: { greeting: "" },
    kind,
    startTimeoutMs: 10_000,
  });
  const probe = new ActorSystem("test").ref<Probe>("probe", place.endpoint);
  return { place, probe, hub: new StreamHub(place.endpoint, streamOptions) };
}

for (const kind of ["thread", "process"] as const) {
  describe(`a stream from a ${kind}`, () => {
    it("arrives complete and in order, and pauses while its reader does not read", async () => {
      const { place, probe, hub } = await openProbe(kind);
      const reader = hub.reader<number>(1);
      const answer = probe.ask("count", { id: 1, count: 1000 });
      let isWritten = false;
      void answer.then(() => {
        isWritten = true;
      });
      await new Promise((resolve) => setTimeout(resolve, 50));
      assert.equal(isWritten, false);
      const items: number[] = [];
      for await (const batch of reader) items.push(...batch);
      assert.deepEqual(
        items,
        Array.from({ length: 1000 }, (_, i) => i),
      );
      assert.ok((await answer).stalls > 1000 / (2 * streamOptions.window));
      await place.stop(2000);
    });

    it("stops its writer when the loop over it is left", async () => {
      const { place, probe, hub } = await openProbe(kind);
      const reader = hub.reader<number>(1);
      const answer = probe.ask("count", { id: 1, count: 1_000_000 });
      for await (const batch of reader) if (batch.includes(100)) break;
      assert.ok((await answer).written < 100 + 3 * streamOptions.window);
      await place.stop(2000);
    });

    it("throws peer_gone after the arrived items when the place is killed", async () => {
      const { place, probe, hub } = await openProbe(kind);
      const reader = hub.reader<number>(1);
      const answer = assert.rejects(probe.ask("count", { id: 1, count: 1_000_000 }), { code: "peer_gone" });
      const items: number[] = [];
      const loop = async () => {
        for await (const batch of reader) {
          items.push(...batch);
          if (items.length < 200) continue;
          place.kill();
          await place.exit;
        }
      };
      await assert.rejects(loop(), { code: "peer_gone" });
      assert.ok(items.length >= 200);
      await answer;
    });
  });
}
