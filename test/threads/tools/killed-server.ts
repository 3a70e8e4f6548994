// Process that killed.test.ts kills: a tools thread and a state thread that run Python, shells and store files without end. It
// prints "ready" when the first results are there.
//
// Arguments: the folder of the state, the folder of the work folders.
import { StateClient } from "../../../actors/front/state-client.ts";
import { ToolsClient } from "../../../actors/front/tools-client.ts";
import { createLogger } from "../../../runtime/log/log.ts";

const [stateFolder = "", workFolder = ""] = process.argv.slice(2);
const log = createLogger({ level: "error", format: "text" });
const limits = { maxEntries: 1000, maxBytes: 2 ** 28, maxEntryBytes: 2 ** 26, maxAgeMs: 1e12 };
const state = new StateClient({
  init: { folder: stateFolder, mailboxLimit: 4096, responses: limits, maxFileContentBytes: 2 ** 28 },
  log,
});
await state.start();
const tools = new ToolsClient({
  log,
  init: {
    sandbox: {
      mode: "on",
      profile: "developer",
      network: "none",
      maxMemoryMb: 512,
      maxCpuSecs: 60,
      maxProcs: 64,
      maxDiskMb: 256,
    },
    python: "python3",
    shellPath: "/bin/sh",
    workFolder,
    codeTimeoutMs: 30_000,
    shellTimeoutMs: 30_000,
    stagingFolder: state.files.stagingFolder,
    mailboxLimit: 4096,
  },
});
await tools.start();

const run = `run-${process.pid}`;
const cell = `
import subprocess, os
subprocess.Popen(["sleep", "4242"], start_new_session=True)
open("out.txt", "w").write("x" * 100_000)
`;

async function work(session: string): Promise<void> {
  for (let turn = 0; ; turn++) {
    const common = { session, client: "c", run: `${run}-${session}`, round: 0, turn, firstFile: 0 };
    const expected = [{ name: "out.txt", format: null }];
    const [python] = await Promise.all([
      tools.run({
        ...common,
        id: `${session}-${turn}-p`,
        tool: "execute_python",
        arguments: JSON.stringify({ code: cell }),
        expected,
      }),
      tools.run({
        ...common,
        id: `${session}-${turn}-s`,
        tool: "shell",
        arguments: JSON.stringify({ command: "sleep 4242 & sleep 0.05" }),
        expected: [],
      }),
    ]);
    await Promise.all(python.files.map((file) => state.files.add(file)));
    if (turn === 0) process.stdout.write("ready\n");
    if (turn % 3 === 2) await tools.closeSession({ session });
  }
}

await Promise.all(["a", "b", "c"].map(work));
