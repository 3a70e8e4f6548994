import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { rowFinishedLength, rowHasToken } from "../../../actors/messages.ts";
import { createRun, createServer, crossed, readAll } from "./rig.ts";

describe("probe", () => {
  it("n=2 rows after the stop string", async () => {
    const { run, sinks, reader, close, vocabulary } = await createRun({ choices: 2, stop: ["b"], maxTokens: 4 });
    run.start();
    const t = (c: string) => vocabulary.encode(c)[0]!;
    const H = rowHasToken;
    sinks[0]!.onToken(t("a"), H, 100, null, 0);
    sinks[0]!.onToken(t("b"), H, 200, null, 0);
    sinks[0]!.onToken(t("c"), H, 300, null, 0);
    sinks[0]!.onToken(t("d"), H | rowFinishedLength, 400, null, 0);
    sinks[1]!.onToken(t("x"), H, 50, null, 0);
    sinks[1]!.onToken(t("y"), H | rowFinishedLength, 60, null, 0);
    const events = await readAll(reader);
    console.log(JSON.stringify(events));
    close();
  });
  it("stalled reader burst", async () => {
    const { run, sinks, reader, close, vocabulary } = await createRun({ choices: 1, maxTokens: 400 }, { window: 8 });
    run.start();
    const t = vocabulary.encode("a")[0]!;
    for (let i = 0; i < 100; i++) sinks[0]!.onToken(t, rowHasToken, 100 + i, null, 0);
    void reader;
    close();
  });
  it("whole", async () => {
    const s = await createServer();
    const events = await readAll(s.start());
    console.log(JSON.stringify(events));
    await crossed();
    await s.close();
  });
});
