import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { ToolOutcome, ToolRun } from "../../../actors/api/agent/tools.ts";
import { ToolsClient } from "../../../actors/front/tools-client.ts";
import { createLogger } from "../../../runtime/log/log.ts";

const log = createLogger({ level: "error", format: "text" });

describe("the tools thread", () => {
  const base = mkdtempSync(join(tmpdir(), "troupe-tools-test-"));
  const stagingFolder = join(base, "staging");
  const workFolder = join(base, "sessions");
  let tools: ToolsClient;
  let count = 0;

  before(async () => {
    for (const folder of [stagingFolder, workFolder]) mkdirSync(folder);
    tools = new ToolsClient({
      log,
      init: {
        sandbox: {
          mode: "on",
          profile: "developer",
          network: "loopback",
          maxMemoryMb: 512,
          maxCpuSecs: 60,
          maxProcs: 64,
          maxDiskMb: 256,
        },
        python: "python3",
        shellPath: "/bin/sh",
        workFolder,
        codeTimeoutMs: 2000,
        shellTimeoutMs: 3000,
        stagingFolder,
        mailboxLimit: 1000,
      },
    });
    await tools.start();
  });
  after(async () => {
    await tools.stop(5000);
    assert.deepEqual(readdirSync(workFolder), [], "the folders of the sessions are gone");
    assert.equal(pythons(), 0, "no interpreter is left");
    rmSync(base, { recursive: true, force: true });
  });

  const pythons = (): number =>
    spawnSync("pgrep", ["-fc", workFolder], { encoding: "utf8" }).stdout.trim() === "0"
      ? 0
      : Number(spawnSync("pgrep", ["-fc", workFolder], { encoding: "utf8" }).stdout);

  const run = (
    tool: ToolRun["tool"],
    args: object | string,
    session = "s",
    given: Partial<ToolRun> = {},
  ): Promise<ToolOutcome> =>
    tools.run({
      id: `call-${count++}`,
      session,
      client: "c",
      run: "run",
      round: 0,
      turn: 0,
      tool,
      arguments: typeof args === "string" ? args : JSON.stringify(args),
      expected: [],
      ...given,
    });
  const python = async (code: string, session = "s", outputs?: object[]) => {
    const outcome = await run("execute_python", outputs === undefined ? { code } : { code, outputs }, session);
    return { ...outcome, model: JSON.parse(outcome.content) as Record<string, unknown> };
  };
  const shell = async (commands: string[], session = "s", more: object = {}) => {
    const outcome = await run("shell", { commands, ...more }, session);
    return { ...outcome, model: JSON.parse(outcome.content) as Record<string, unknown> };
  };

  it("keeps variables, imports and files between the cells of a session", async () => {
    await python("import math\nx = 20\nopen('a.txt', 'w').write('hello')");
    const { model, status } = await python("x * 2 + math.floor(2.5)");
    assert.deepEqual([status, model.result, model.result_type], ["success", "42", "int"]);
    assert.equal((await python("open('a.txt').read()")).model.result, "'hello'");
  });

  it("separates stdout, stderr, the value and the exception", async () => {
    const { model, data, status } = await python(
      "import sys, os\nprint('out')\nprint('err', file=sys.stderr)\nos.system('echo child')\n1 / 0",
    );
    assert.equal(status, "error");
    assert.equal(model.stdout, "out\nchild\n");
    assert.equal(model.stderr, "err\n");
    assert.match(String(model.exception), /ZeroDivisionError: division by zero/);
    assert.match(String(model.exception), /<cell \d+>", line 5/);
    assert.doesNotMatch(String(model.exception), /<string>/, "the frames of the driver are not shown");
    assert.equal(data.stdout, model.stdout);
  });

  it("explains a syntax error, and input that never comes", async () => {
    assert.match(String((await python("def f(:")).model.exception), /SyntaxError/);
    assert.match(String((await python("input()")).model.exception), /EOFError/);
  });

  it("interrupts a cell after the time limit and keeps the state", async () => {
    await python("kept = 1");
    const { status, model } = await python("import time\ntime.sleep(60)");
    assert.equal(status, "timeout");
    assert.match(String(model.exception), /KeyboardInterrupt/);
    assert.equal((await python("kept")).model.result, "1");
  });

  it("kills a cell that does not react to the interrupt, and says that the state is lost", async () => {
    const { status, model } = await python(
      "import signal, time\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nlost = 1\ntime.sleep(60)",
      "stubborn",
    );
    assert.equal(status, "timeout");
    assert.match(String(model.exception), /variables are lost/);
    const next = await python("'lost' in globals()", "stubborn");
    assert.equal(next.model.result, "False");
    assert.match(String(next.model.note), /variables of earlier calls are lost/);
  });

  it("survives a cell that ends or crashes the interpreter", async () => {
    assert.match(String((await python("import sys\nsys.exit(3)", "exits")).model.exception), /SystemExit: 3/);
    assert.match(String((await python("import os\nos._exit(3)", "exits")).model.exception), /exit code 3/);
    assert.match(
      String((await python("import ctypes\nctypes.string_at(0)", "exits")).model.exception),
      /interpreter was ended/,
    );
    assert.equal((await python("1 + 1", "exits")).model.result, "2");
  });

  it("bounds the output of a cell", async () => {
    const { model, data } = await python("for i in range(40000): print('line', i)");
    assert.ok(String(model.stdout).length < 13_000);
    assert.match(String(model.stdout), /characters left out/);
    assert.match(String(model.stdout), /^line 0\n(?:.|\n)*line 39999\n$/);
    assert.ok(String(data.stdout).length < 66_000);
    assert.ok(String((await python("'x' * 10 ** 7")).model.result).length < 17_000);
  });

  it("shows pictures that have a PNG form, and takes no other process's output for them", async () => {
    const code = "class P:\n    def _repr_png_(self): return b'\\x89PNG picture'\nP()";
    const { images, model } = await python(code);
    assert.deepEqual(
      images.map((image) => Buffer.from(image, "base64").toString("latin1")),
      ["\x89PNG picture"],
    );
    assert.equal(model.images_generated, 1);
  });

  it("is not confused by threads that print, or by code that writes to the driver's channel", async () => {
    await python(
      "import threading, time\ndef noise():\n    for _ in range(50):\n        print('noise', flush=True)\n        time.sleep(0.002)\nthreading.Thread(target=noise).start()",
      "noisy",
    );
    const { model } = await python("import os\nos.write(4, b'not json\\n')\n'fine'", "noisy");
    assert.ok(model.result === "'fine'" || model.status === "timeout", JSON.stringify(model));
    assert.equal((await python("2 + 2", "noisy")).model.result, "4");
    for (const line of ["null", "{}", '{\\"result\\": 1}']) {
      const { model } = await python(`import os\nos.write(4, b"${line}\\n")\n'fine'`, "noisy");
      assert.ok(model.result === "'fine'" || model.status === "timeout", JSON.stringify(model));
    }
  });

  it("ends an interpreter whose code floods the driver's channel", async () => {
    const { status, model } = await python("import os\nwhile True: os.write(4, b'x' * 65536)", "flood");
    assert.equal(status, "error");
    assert.match(String(model.exception), /interpreter was ended/);
    assert.ok(process.memoryUsage().rss < 1.2 * 2 ** 30);
    assert.equal((await python("2 + 2", "flood")).model.result, "4");
  });

  it("resets the interpreter on request", async () => {
    await python("gone = 1", "reset");
    assert.equal((await run("reset_python_session", {}, "reset")).status, "success");
    assert.equal((await python("'gone' in globals()", "reset")).model.result, "False");
  });

  it("runs shell commands one after another, and each has its own result", async () => {
    const { model, data, status } = await shell(["echo one; cd /; X=1", "echo two >&2; exit 3", "pwd"]);
    assert.equal(status, "error");
    assert.deepEqual([model.stdout, model.stderr, model.exit_code], ["one\n/work\n", "two\n", 0]);
    const outcomes = (data.output as { outcome: object }[]).map(({ outcome }) => outcome);
    assert.deepEqual(outcomes, [
      { type: "exit", exit_code: 0 },
      { type: "exit", exit_code: 3 },
      { type: "exit", exit_code: 0 },
    ]);
  });

  it("ends a command at its time limit, with everything that it has started", async () => {
    const startedAt = performance.now();
    const { model, data, status } = await shell(["sleep 60 & sleep 60"], "s", { timeout_ms: 300 });
    assert.equal(status, "timeout");
    assert.equal(model.timed_out, true);
    assert.deepEqual((data.output as { outcome: object }[])[0]?.outcome, { type: "timeout" });
    assert.ok(performance.now() - startedAt < 2000);
  });

  it("shares the work folder between Python and the shell of a session, and with no other session", async () => {
    await python("open('shared.txt', 'w').write('from python')", "one");
    assert.equal((await shell(["cat shared.txt"], "one")).model.stdout, "from python");
    assert.match(String((await shell(["cat shared.txt"], "two")).model.stderr), /No such file/);
    assert.doesNotMatch(String((await shell([`ls ${workFolder} /tmp`], "two")).model.stdout), /session-/);
  });

  it("runs the commands of a session in parallel", async () => {
    const startedAt = performance.now();
    await Promise.all([shell(["sleep 0.5"]), shell(["sleep 0.5"]), shell(["sleep 0.5"])]);
    assert.ok(performance.now() - startedAt < 1200);
  });

  it("surfaces files that a call creates or changes, those that it names, and says which are missing", async () => {
    const { files } = await shell(
      ["mkdir -p out; echo 1 > out/new.csv; echo 2 > b.txt; touch .hidden; ln -s /etc/passwd link; mkfifo pipe"],
      "files",
      { outputs: [{ name: "missing.png", format: "png" }] },
    );
    assert.deepEqual(
      files.map(({ name, failure, id }) => [id, name, failure?.code ?? null]),
      [
        ["file_run_r0_0", "missing.png", "not_produced"],
        ["file_run_r0_1", "b.txt", null],
        ["file_run_r0_2", "out/new.csv", null],
      ],
    );
    assert.equal(readFileSync(join(stagingFolder, files[1]!.staged!), "utf8"), "2\n");
    const again = await shell(["echo 3 >> b.txt"], "files");
    assert.deepEqual(
      again.files.map(({ name }) => name),
      ["b.txt"],
    );
    const surfaced = await run(
      "surface_outputs",
      { outputs: [{ name: "out/new.csv" }, { name: "/work/b.txt" }] },
      "files",
    );
    assert.deepEqual(
      surfaced.files.map(({ name, failure }) => [name, failure]),
      [
        ["out/new.csv", null],
        ["b.txt", null],
      ],
    );
    const expected = await run("shell", { commands: ["true"] }, "files", {
      expected: [{ name: "b.txt", format: "txt" }],
    });
    assert.deepEqual(
      expected.files.map(({ name, format }) => [name, format]),
      [["b.txt", "txt"]],
    );
  });

  it("follows no link out of the work folder, whatever is named", async () => {
    await shell(
      ["ln -s /etc linked; ln -s /etc/hostname h; ln b.txt hard 2>/dev/null; echo x > b2.txt; ln b2.txt hard2"],
      "links",
    );
    const names = ["linked/hostname", "h", "../../etc/passwd", "/etc/passwd", "hard2", "nul", "."];
    const { files } = await run("surface_outputs", { outputs: names.map((name) => ({ name })) }, "links");
    assert.equal(files.length, names.length);
    for (const { failure, staged, name } of files) assert.ok(failure !== null && staged === null, name);
  });

  it("surfaces at most 64 files of a call and says how many there are", async () => {
    const { files, model } = await shell(["for i in $(seq 100); do echo $i > f$i.txt; done"], "many");
    assert.equal(files.length, 64);
    assert.match(String(model.note_on_files), /^36 more/);
  });

  it("mounts files, which are then no outputs", async () => {
    const path = join(base, "input.csv");
    writeFileSync(path, "a,b\n");
    await tools.mount({ session: "mounted", files: [{ name: "data.csv", path }] });
    const { model, files } = await shell(["cat data.csv; ls"], "mounted");
    assert.equal(model.stdout, "a,b\ndata.csv\n");
    assert.deepEqual(files, []);
    await assert.rejects(tools.mount({ session: "mounted", files: [{ name: "../x", path }] }), {
      code: "invalid_value",
    });
  });

  it("explains arguments that are wrong", async () => {
    for (const args of ["not json", "{}", '{"code": 1}', '{"code": "1", "more": 2}']) {
      const { status, content } = await run("execute_python", args);
      assert.equal(status, "error");
      assert.match(content, /arguments of execute_python/);
    }
  });

  it("ends a running call at once when it is cancelled", async () => {
    for (const [tool, args] of [
      ["execute_python", { code: "while True: pass" }],
      ["shell", { commands: ["sleep 60", "echo never"] }],
    ] as const) {
      const startedAt = performance.now();
      const running = run(tool, args, "cancelled", { id: `cancel-${tool}` });
      await sleep(400);
      tools.cancel({ id: `cancel-${tool}` });
      assert.equal((await running).status, "cancelled");
      assert.ok(performance.now() - startedAt < 1500, tool);
    }
    assert.match(String((await python("1", "cancelled")).model.note), /variables of earlier calls are lost/);
  });

  it("removes the processes and the folder of a session", async () => {
    await python("import subprocess\nsubprocess.Popen(['sleep', '60'])\nopen('x.txt', 'w').write('x')", "closing");
    const folders = readdirSync(readdirSync(workFolder).map((name) => join(workFolder, name))[0]!);
    await tools.closeSession({ session: "closing" });
    const left = readdirSync(readdirSync(workFolder).map((name) => join(workFolder, name))[0]!);
    assert.equal(left.length, folders.length - 1);
    assert.equal((await python("import os\nos.path.exists('x.txt')", "closing")).model.result, "False");
  });

  it("has an interpreter ready for a new session, and answers fast", async () => {
    const first: number[] = [];
    const warm: number[] = [];
    for (let i = 0; i < 5; i++) {
      await sleep(400);
      let startedAt = performance.now();
      await python("1 + 1", `quick-${i}`);
      first.push(performance.now() - startedAt);
      for (let k = 0; k < 5; k++) {
        startedAt = performance.now();
        await python("1 + 1", `quick-${i}`);
        warm.push(performance.now() - startedAt);
      }
    }
    const median = (values: number[]) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
    assert.ok(median(first) <= 150, `${median(first).toFixed(1)} ms for the first cell of a session`);
    assert.ok(median(warm) <= 10, `${median(warm).toFixed(1)} ms for a cell of a warm session`);
  });
});

describe("the folders of tools", () => {
  it("are removed by the next start if the server was killed", async () => {
    const parent = mkdtempSync(join(tmpdir(), "troupe-killed-"));
    const script = `
      import { createProcessFolder } from ${JSON.stringify(new URL("../../../runtime/host/process-folder.js", import.meta.url).href)};
      const folder = createProcessFolder("tools", [${JSON.stringify(parent)}]);
      process.kill(process.pid, "SIGKILL");`;
    spawnSync(process.execPath, ["--input-type=module", "-e", script]);
    assert.equal(readdirSync(parent).length, 1);
    const { createProcessFolder } = await import("../../../runtime/host/process-folder.ts");
    const own = createProcessFolder("tools", [parent]);
    assert.deepEqual(
      readdirSync(parent).map((name) => join(parent, name)),
      [own],
    );
    assert.ok(existsSync(own));
    rmSync(parent, { recursive: true });
  });
});
