import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { ToolsRig } from "./rig.ts";

describe("cells that disturb the interpreter", () => {
  const rig = new ToolsRig();
  const { python, run, shell } = rig;

  before(() => rig.client.start());
  after(async () => {
    await rig.stop();
    assert.deepEqual(rig.processes(), []);
    rig.dispose();
  });

  it("may redirect or close stdout and stderr: the next cell has its own again", async () => {
    const redirect = "import os, sys\nos.dup2(os.open('/dev/null', os.O_WRONLY), 1)\nprint('lost')\n'done'";
    for (const code of [redirect, "import os\nos.close(1); os.close(2)\n'done'", "sys.stdout.close()\n'done'"]) {
      assert.equal((await python(code)).model.result, "'done'", code);
      const { model } = await python("import os\nprint('shown')\nos.system('echo child')\nprint('e', file=sys.stderr)");
      assert.deepEqual([model.stdout, model.stderr, model.exception], ["shown\nchild\n", "e\n", null], code);
    }
    assert.equal((await python("sys.stdout = None\n1")).model.result, "1");
    assert.equal((await python("print('shown')")).model.stdout, "shown\n");
  });

  it("may make stdout non-blocking", async () => {
    await python("import os\nos.set_blocking(1, False)");
    assert.equal((await python("print('x' * 10)\n5")).model.result, "5");
  });

  it("may close all descriptors: the interpreter ends and says so", async () => {
    const { model } = await python("import os\nx = 1\nos.closerange(0, 256)", "closed");
    assert.match(String(model.exception), /interpreter was ended: it ended with exit code/);
    assert.match(String((await python("1", "closed")).model.note), /variables of earlier calls are lost/);
  });

  it("may fork: the child replies to nobody", async () => {
    const { model } = await python("import os\nif os.fork() == 0:\n    print('child')\nelse:\n    os.wait()\n'parent'");
    assert.deepEqual([model.result, model.stdout], ["'parent'", "child\n"]);
    const failed = await python("if os.fork() == 0:\n    1 / 0\nos.wait()[1] >> 8");
    assert.equal(failed.model.result, "1");
    assert.match(String(failed.model.stderr), /ZeroDivisionError/);
    assert.equal((await python("2")).model.result, "2");
  });

  it("keeps what a cell printed before its interpreter ended", async () => {
    for (let i = 0; i < 5; i++) {
      const { model } = await python("import os\nprint('before')\nos._exit(4)", "ends");
      assert.equal(model.stdout, "before\n");
      assert.match(String(model.exception), /exit code 4/);
    }
  });

  it("says that variables are lost if the interpreter ended between cells", async () => {
    await python("import threading, os\nkept = 1\nthreading.Timer(0.2, os._exit, [1]).start()", "later");
    await sleep(800);
    const { model } = await python("'kept' in globals()", "later");
    assert.equal(model.result, "False");
    assert.match(String(model.note), /variables of earlier calls are lost/);
  });

  it("waits between cells for processes that print without end", async () => {
    await python("import subprocess\np = subprocess.Popen(['yes'])", "yes");
    await sleep(300);
    const before = process.cpuUsage();
    await sleep(1000);
    const { user, system } = process.cpuUsage(before);
    assert.ok(user + system < 300_000, `${(user + system) / 1000} ms of processor time in one second`);
    const { model, data } = await python("p.kill()\n'ended'", "yes");
    assert.equal(model.result, "'ended'");
    assert.ok(String(data.stdout).length <= 65_600);
  });

  it("interrupts the display of a value, and a cell that handles signals in its own way", async () => {
    const shown = await python("class Slow:\n    def __repr__(self):\n        while True: pass\nSlow()", "slow");
    assert.equal(shown.status, "timeout");
    assert.match(String(shown.model.exception), /KeyboardInterrupt/);
    await python("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)", "slow");
    const next = await python("kept = 1\nwhile True: pass", "slow");
    assert.match(String(next.model.exception), /KeyboardInterrupt/, "the next cell can be interrupted again");
    assert.equal((await python("kept", "slow")).model.result, "1");
  });

  it("describes exceptions that describe themselves badly", async () => {
    const code = "class Bad(Exception):\n    def __str__(self): raise ValueError('no')\nraise Bad()";
    assert.match(String((await python(code)).model.exception), /Bad/);
    assert.match(String((await python("raise ValueError('x' * 10 ** 6)")).model.exception), /characters left out/);
    assert.equal((await python("type('N' * 10 ** 6, (), {'__repr__': lambda self: 'r'})()")).model.result, "r");
    assert.match(String((await python("'\\ud800'")).model.result), /ud800/);
  });

  it("bounds the result in bytes whatever the output consists of", async () => {
    for (const code of ["print('\\x01' * 10 ** 5)", "print('\\u65e5' * 10 ** 5)\n'\\U0001f600' * 10 ** 5"]) {
      const { content, model } = await python(code);
      assert.ok(Buffer.byteLength(content) <= 32_768, `${Buffer.byteLength(content)} bytes`);
      assert.match(String(model.stdout), /\[\d+ bytes left out\]/);
      assert.doesNotMatch(content, /\\ud[89a-f]|\ufffd/i, "no character is cut");
    }
    const { content, data } = await shell(Array.from({ length: 64 }, () => "head -c 100000 /dev/zero | tr '\\0' x"));
    assert.ok(Buffer.byteLength(content) <= 32_768);
    assert.ok(JSON.stringify(data).length < 4 * 65_536, `${JSON.stringify(data).length} characters of data`);
  });

  it("runs cells of one session in order, and cancels only the requested one", async () => {
    const first = python("import time\nx = 1\ntime.sleep(1)\n'first'", "queue");
    const second = python("x = 2\n'second'", "queue", { id: "second" });
    const reset = run("reset_python_session", {}, "queue");
    const last = python("'x' in globals()", "queue");
    await sleep(200);
    const startedAt = performance.now();
    rig.client.cancel({ id: "second" });
    assert.equal((await second).status, "cancelled");
    assert.ok(performance.now() - startedAt < 300, "a waiting call ends at once");
    assert.deepEqual([(await first).status, (await first).model.result], ["success", "'first'"]);
    assert.equal((await reset).status, "success");
    assert.equal((await last).model.result, "False");
  });

  it("starts nothing in a session that is being closed", async () => {
    const folders = rig.folders().length;
    const calls = [
      python("import time\ntime.sleep(1)", "closing"),
      python("open('x', 'w').write('x')", "closing"),
      shell(["sleep 1", "echo x > y"], "closing"),
    ];
    await sleep(300);
    await rig.client.closeSession({ session: "closing" });
    for (const call of calls) assert.notEqual((await call).status, "success");
    assert.equal(rig.folders().length, folders);
  });

  it("explains commands that cannot be passed to a shell", async () => {
    for (const command of ["echo a\0b", `echo ${"x".repeat(140_000)}`, `echo ${"\u65e5".repeat(60_000)}`]) {
      const { status, content } = await run("shell", { commands: [command] });
      assert.equal(status, "error");
      assert.match(content, /invalid arguments of shell/);
    }
    assert.equal((await shell([`echo ${"x".repeat(100_000)} | wc -c`])).model.stdout, "100001\n");
  });

  it("shares the time of a shell call among its commands", async () => {
    const startedAt = performance.now();
    const { status, data } = await shell(["sleep 2", "sleep 2", "echo never"]);
    assert.ok(performance.now() - startedAt < 4500);
    assert.equal(status, "timeout");
    const output = data.output as { outcome: { type: string }; stderr: string }[];
    assert.deepEqual(
      output.map(({ outcome }) => outcome.type),
      ["exit", "timeout", "timeout"],
    );
    assert.match(output[2]!.stderr, /^not run/);
  });
});

describe("tools without a sandbox", () => {
  const rig = new ToolsRig({ mode: "off" });
  const { python, run, shell } = rig;

  before(() => rig.client.start());
  after(async () => {
    await rig.stop();
    rig.dispose();
  });

  it("do not wait for a process that left its group and holds the output open", async () => {
    const startedAt = performance.now();
    const { model } = await shell(["setsid sleep 5 & echo done"]);
    assert.equal(model.stdout, "done\n");
    assert.ok(performance.now() - startedAt < 3000);
    const { model: ended } = await python(
      "import subprocess, os\nsubprocess.Popen(['sleep', '5'], start_new_session=True)\nprint('x')\nos._exit(1)",
    );
    assert.equal(ended.stdout, "x\n");
    assert.ok(performance.now() - startedAt < 5000);
  });

  it("report the exit code of a command that a signal ended", async () => {
    const { data } = await shell(["kill -TERM $$"]);
    assert.deepEqual((data.output as { outcome: object }[])[0]?.outcome, { type: "exit", exit_code: 143 });
  });

  it("surface files by the path that the code sees", async () => {
    const { model } = await shell(["echo x > x.txt; pwd"]);
    const outputs = [{ name: `${String(model.working_directory)}/x.txt` }];
    const { files } = await run("surface_outputs", { outputs });
    assert.deepEqual(
      files.map(({ name, failure }) => [name, failure]),
      [["x.txt", null]],
    );
  });
});
