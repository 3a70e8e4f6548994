// Input files: how many files are loaded from URLs at the same time.
import assert from "node:assert/strict";
import { join } from "node:path";
import { it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { prepareFiles } from "../../../../actors/agent-loop/files/input-files.ts";
import { FakeFiles } from "./parts.ts";

it("files are loaded from URLs four at a time for one client, and eight for all", async () => {
  const files = new FakeFiles();
  try {
    const running = new Map<string, number>();
    let [mostOfOne, mostOfAll] = [0, 0];
    const loaded = async (client: string, i: number) => {
      const fetchFile = async () => {
        running.set(client, (running.get(client) ?? 0) + 1);
        mostOfOne = Math.max(mostOfOne, ...running.values());
        mostOfAll = Math.max(
          mostOfAll,
          [...running.values()].reduce((sum, count) => sum + count, 0),
        );
        await sleep(20);
        running.set(client, (running.get(client) ?? 0) - 1);
        return { name: "a.txt", content: new TextEncoder().encode(`${client} ${i}`) };
      };
      const run = { client, session: "s", turn: 0, signal: new AbortController().signal };
      await prepareFiles([{ message: 0, url: `https://files.example/${i}`, name: null }], files, fetchFile, run);
    };
    const clients = ["a", "b", "c"];
    await Promise.all(clients.flatMap((client) => Array.from({ length: 8 }, (_, i) => loaded(client, i))));
    assert.deepEqual([mostOfOne, mostOfAll], [4, 8]);
  } finally {
    files.dispose();
  }
});

it("a file that cannot be written gives an error that can be retried", async () => {
  const files = new FakeFiles();
  const missing = Object.assign(Object.create(files), { stagingFolder: join(files.stagingFolder, "missing") });
  const input = { message: 0, name: "a.txt", content: new TextEncoder().encode("a") };
  const run = { client: "c", session: "s", turn: 0, signal: new AbortController().signal };
  const fetchFile = () => Promise.reject(new Error("nothing is fetched"));
  try {
    await assert.rejects(prepareFiles([input], missing as FakeFiles, fetchFile, run), { code: "storage_unavailable" });
  } finally {
    files.dispose();
  }
});
