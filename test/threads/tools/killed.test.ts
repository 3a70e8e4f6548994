// A server that is killed (SIGKILL) while its tools run leaves no command running. The next one ends bubblewraps that had not
// started their command yet, removes the folders and reads the files. KILLS sets the number of kills.
import assert from "node:assert/strict";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { StateClient } from "../../../actors/front/state-client.ts";
import { createLogger } from "../../../runtime/log/log.ts";
import { seeded } from "../../fixtures/schemas/random-text.ts";

const kills = Number(process.env.KILLS ?? 5);
const program = fileURLToPath(new URL("../../fixtures/actors/killed-server.js", import.meta.url));

const bubblewrap = /^\S+\s+\S*bwrap /;

describe("a server that is killed while tools run", () => {
  it(`leaves no process and no broken file, ${kills} times`, { timeout: 30_000 + kills * 10_000 }, async () => {
    const base = mkdtempSync(join(tmpdir(), "troupe-killed-"));
    const [stateFolder, workFolder] = [join(base, "state"), join(base, "work")];
    for (const folder of [stateFolder, workFolder]) mkdirSync(folder);
    const random = seeded(11);
    try {
      let killed = "";
      for (let i = 0; i < kills; i++) {
        const server = await startServer(stateFolder, workFolder);
        if (killed !== "") await assertNoneLeft((line) => line.includes(killed), `start ${i}`);
        assert.equal(readdirSync(workFolder).length, 1, "only the folder of the running server is there");
        await sleep(random() * 600);
        server.kill("SIGKILL");
        await once(server, "exit");
        // The arguments of a bubblewrap contain those of the command that it has not started yet.
        const isCommand = (line: string) => line.includes(`sleep 4242.${server.pid}`) && !bubblewrap.test(line);
        await assertNoneLeft(isCommand, `kill ${i}`);
        killed = `@${server.pid}.`;
      }
      await assertFilesCanBeRead(stateFolder);
    } finally {
      rmSync(base, { recursive: true, force: true });
    }
  });
});

async function startServer(stateFolder: string, workFolder: string): Promise<ChildProcess> {
  const server = spawn(process.execPath, [program, stateFolder, workFolder], { stdio: ["ignore", "pipe", "inherit"] });
  await once(server.stdout, "data");
  return server;
}

/** Waits until no process is left that is meant. `isMeant` sees the state and the command of each process. */
async function assertNoneLeft(isMeant: (line: string) => boolean, what: string): Promise<void> {
  let left: readonly string[] = [];
  for (let i = 0; i < 100; i++) {
    const lines = spawnSync("ps", ["-eo", "stat,args"], { encoding: "utf8" }).stdout.split("\n");
    left = lines.filter(isMeant);
    if (left.length === 0) return;
    await sleep(50);
  }
  assert.deepEqual(left, [], what);
}

async function assertFilesCanBeRead(folder: string): Promise<void> {
  const limits = { maxEntries: 1000, maxBytes: 2 ** 28, maxEntryBytes: 2 ** 26, maxAgeMs: 1e12 };
  const state = new StateClient({
    init: { folder, mailboxLimit: 4096, responses: limits, maxFileContentBytes: 2 ** 28 },
    log: createLogger({ level: "error", format: "text" }),
  });
  await state.start();
  try {
    const { files } = await state.files.list({ session: null, after: null, limit: 100 });
    assert.ok(files.length > 0, "files were stored");
    for (const { id, bytes } of files) {
      const content = await state.files.content(id);
      assert.ok(content?.kind === "content", `${id} is kept`);
      assert.equal(statSync(content.path).size, bytes, id);
    }
  } finally {
    await state.stop(5000);
  }
}
