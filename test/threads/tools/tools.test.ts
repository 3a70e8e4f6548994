import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ToolsRig } from "./rig.ts";

describe("the tools process", () => {
  const rig = new ToolsRig();
  const { python, shell, run } = rig;

  before(() => rig.client.start());
  after(async () => {
    await rig.stop();
    assert.deepEqual(readdirSync(rig.workFolder), [], "the folders of the sessions are gone");
    assert.deepEqual(rig.processes(), [], "no process is left");
    rig.dispose();
  });

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
    assert.match(String(model.stdout), /bytes left out/);
    assert.match(String(model.stdout), /^line 0\n(?:.|\n)*line 39999\n$/);
    assert.ok(String(data.stdout).length < 66_000);
    assert.ok(String((await python("'x' * 10 ** 7")).model.result).length < 17_000);
  });

  it("shows pictures that have a PNG form, and ignores output of other processes", async () => {
    const code = "class P:\n    def _repr_png_(self): return b'\\x89PNG\\r\\n\\x1a\\n.'\nP()";
    const { images, model } = await python(code);
    assert.deepEqual(
      images.map((image) => Buffer.from(image, "base64").toString("latin1")),
      ["\x89PNG\r\n\x1a\n."],
    );
    assert.equal(model.images_generated, 1);
  });

  it("is not confused by threads that print, or by code that writes to the driver's channel", async () => {
    await python(
      "import threading, time\ndef noise():\n    for _ in range(50):\n        print('noise', flush=True)\n        time.sleep(0.002)\nthreading.Thread(target=noise).start()",
      "noisy",
    );
    for (const line of ["not json", "null", "{}", '{"result": 1}', "1\\n2\\n3"]) {
      const { model } = await python(`import os\nos.write(4, b'${line}\\n')\n'fine'`, "noisy");
      assert.equal(model.result, "'fine'", line);
    }
    const forged = await python("import os\nos.write(4, b'{\"id\": 7}\\n')\n'fine'", "noisy");
    assert.match(String(forged.model.exception), /written to the channel/);
    assert.equal((await python("2 + 2", "noisy")).model.result, "4");
  });

  it("ends an interpreter whose code floods the driver's channel", async () => {
    const { status, model } = await python("import os\nwhile True: os.write(4, b'x' * 65536)", "flood");
    assert.equal(status, "error");
    assert.match(String(model.exception), /interpreter was ended: its code has written to the channel/);
    assert.ok(process.memoryUsage().rss < 1.2 * 2 ** 30);
    assert.equal((await python("2 + 2", "flood")).model.result, "4");
  });

  it("ignores a forged reply with many parts, which would take much memory", async () => {
    const before = process.memoryUsage().rss;
    const code = "import os\nos.write(4, b'[' + b'{},' * 5_000_000 + b'{}]\\n')\n6 * 7";
    assert.equal((await python(code, "parts")).model.result, "42");
    assert.ok(process.memoryUsage().rss - before < 300 * 2 ** 20);
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
    assert.doesNotMatch(String((await shell([`ls ${rig.workFolder} /tmp`], "two")).model.stdout), /session-/);
  });

  it("runs the commands of a session in parallel", async () => {
    const startedAt = performance.now();
    await Promise.all([shell(["sleep 0.5"]), shell(["sleep 0.5"]), shell(["sleep 0.5"])]);
    assert.ok(performance.now() - startedAt < 1200);
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
      rig.client.cancel({ id: `cancel-${tool}` });
      assert.equal((await running).status, "cancelled");
      assert.ok(performance.now() - startedAt < 1500, tool);
    }
    assert.match(String((await python("1", "cancelled")).model.note), /variables of earlier calls are lost/);
  });

  it("removes the processes and the folder of a session", async () => {
    await python("import subprocess\nsubprocess.Popen(['sleep', '60'])\nopen('x.txt', 'w').write('x')", "closing");
    const folders = rig.folders();
    await rig.client.closeSession({ session: "closing" });
    assert.equal(rig.folders().length, folders.length - 1);
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
