import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { inspectIsolation } from "../../../runtime/sandbox/host-isolation.ts";
import { openSandbox } from "../../../runtime/sandbox/open-sandbox.ts";
import type { ConfinedExit, Sandbox, SandboxSettings } from "../../../runtime/sandbox/sandbox.ts";
import { attempts, type Scene } from "./attempts.ts";
import { shellAttempts } from "./shell-attempts.ts";

const settings: SandboxSettings = {
  mode: "on",
  profile: "developer",
  network: "loopback",
  maxMemoryMb: 256,
  maxCpuSecs: 20,
  maxProcs: 32,
  maxDiskMb: 64,
};
const open = (given: Partial<SandboxSettings> = {}): Sandbox => openSandbox({ ...settings, ...given }, () => {});

/** Path of the Python interpreter, followed by the folders that it needs. */
const [python = "", ...prefixes] = JSON.parse(
  spawnSync("python3", ["-c", "import sys, json; print(json.dumps([sys.executable, sys.base_prefix]))"], {
    encoding: "utf8",
  }).stdout,
) as string[];

interface Ran extends ConfinedExit {
  readonly output: string;
  readonly ms: number;
}

async function run(
  sandbox: Sandbox,
  folder: string,
  argv: readonly [string, ...string[]],
  limitMs = 20_000,
  readable: readonly string[] = prefixes,
): Promise<Ran> {
  const startedAt = performance.now();
  const running = sandbox.launch({ argv, workFolder: folder, readable });
  let output = "";
  for (const stream of [running.stdout, running.stderr]) stream.on("data", (chunk: Buffer) => (output += chunk));
  running.stdin.end();
  const timer = setTimeout(() => void running.kill(), limitMs);
  const exit = await running.exited;
  clearTimeout(timer);
  return { ...exit, output, ms: performance.now() - startedAt };
}

describe("the sandbox of tools", () => {
  const base = mkdtempSync(join(tmpdir(), "troupe-escape-"));
  const folder = join(base, "session", "work");
  // The name has the maximum length, because Node 20 pads shorter names with zeros and Node 24 does not.
  const abstractName = `troupe-escape-${process.pid}`.padEnd(107, "-");
  let scene: Scene;
  let sandboxes: Readonly<Record<"on" | "none" | "full" | "off", Sandbox>>;
  const servers: ReturnType<typeof createServer>[] = [];

  before(async () => {
    assert.equal(inspectIsolation().kind, "bubblewrap", inspectIsolation().missing.join("; "));
    const otherFolder = join(base, "other", "work");
    const hostFolder = join(base, "host");
    for (const path of [folder, otherFolder, `${otherFolder}.tmp`, hostFolder]) mkdirSync(path, { recursive: true });
    const secretFile = join(hostFolder, "secret.txt");
    writeFileSync(secretFile, "secret");
    writeFileSync(join(otherFolder, "theirs.txt"), "theirs");
    const setuidProgram = join(hostFolder, "id");
    copyFileSync("/usr/bin/id", setuidProgram);
    chmodSync(setuidProgram, 0o4755);
    const listening = async (address: object): Promise<number> => {
      const server = createServer((socket) => socket.destroy());
      servers.push(server);
      await new Promise<void>((resolve) => server.listen(address, resolve));
      const bound = server.address();
      return typeof bound === "object" && bound !== null ? bound.port : 0;
    };
    const port = await listening({ host: "127.0.0.1", port: 0 });
    const metadataPort = await listening({ host: "127.66.254.169", port: 0 });
    await listening({ path: `\0${abstractName}` });
    const socketPath = join(hostFolder, "socket");
    await listening({ path: socketPath });
    const secret = "s3cr3t-of-the-server";
    process.env.TROUPE_TEST_SECRET = secret;
    scene = {
      secretFile,
      otherFolder,
      hostFolder,
      serverPid: process.pid,
      secret,
      // /proc shows the environment with which the process was started.
      startVariable: readFileSync("/proc/self/environ", "latin1").split("\0")[0] ?? "",
      port,
      metadataPort,
      abstractName,
      setuidProgram,
      socketPath,
      inherited: spawnSync("find", ["/proc/self/fd", "-printf", "%l\n"], { encoding: "utf8" }).stdout.split("\n"),
    };
    sandboxes = {
      on: open(),
      none: open({ network: "none" }),
      full: open({ network: "full" }),
      off: open({ mode: "off" }),
    };
  });
  after(async () => {
    for (const server of servers) server.close();
    for (const sandbox of Object.values(sandboxes)) await sandbox.close();
    rmSync(base, { recursive: true, force: true });
  });

  for (const attempt of attempts) {
    it(`does not let code ${attempt.name}`, async () => {
      const script = attempt.python(scene);
      const { output } = await run(sandboxes.on, folder, [python, "-c", script]);
      assert.match(output, /^refused: /m, output);
      assert.doesNotMatch(output, /ESCAPED/);
      const shell = await run(sandboxes.none, folder, ["/bin/sh", "-c", `exec "${python}" -c "$0"`, script]);
      assert.doesNotMatch(shell.output, /ESCAPED/);
      if (attempt.hasNoControl || process.getuid?.() !== 0) return;
      const control = await run(sandboxes.off, folder, [python, "-c", script]);
      assert.match(control.output, /ESCAPED/, `the attempt does not work outside either: ${control.output}`);
    });
  }

  for (const { name, script } of shellAttempts) {
    it(`does not let a shell command ${name}`, async () => {
      const argv = ["/bin/sh", "-c", `${script(scene)} && echo ESCAPED || echo refused:`] as const;
      const { output } = await run(sandboxes.on, folder, argv);
      assert.match(output, /^refused:/m, output);
      assert.doesNotMatch(output, /ESCAPED/);
      if (process.getuid?.() !== 0) return;
      const control = await run(sandboxes.off, folder, argv);
      assert.match(control.output, /ESCAPED/, `the attempt does not work outside either: ${control.output}`);
    });
  }

  it("keeps code from abstract sockets of the host also with its network, but not from its own", async () => {
    const attempt = attempts.find(({ name }) => name === "connect to an abstract socket of the host");
    assert.ok(attempt !== undefined && inspectIsolation().scopesSockets, inspectIsolation().missing.join("; "));
    const { output } = await run(sandboxes.full, folder, [python, "-c", attempt.python(scene)]);
    assert.match(output, /^refused: PermissionError/m, output);
    const own =
      "import socket\na = socket.socket(socket.AF_UNIX)\na.bind('\\0own')\na.listen()\nsocket.socket(socket.AF_UNIX).connect('\\0own')\nprint('fine')";
    assert.equal((await run(sandboxes.full, folder, [python, "-c", own])).output, "fine\n");
  });

  it("gives a command the network of the host only with network full", async () => {
    const script = `import socket\nsocket.create_connection(("127.0.0.1", ${scene.port}), 3)\nprint("connected")`;
    assert.equal((await run(sandboxes.full, folder, [python, "-c", script])).output, "connected\n");
    assert.match((await run(sandboxes.on, folder, [python, "-c", script])).output, /ConnectionRefusedError/);
    const inside =
      "import socket\na = socket.create_server(('127.0.0.1', 0))\nsocket.create_connection(a.getsockname())\nprint('fine')";
    assert.equal((await run(sandboxes.on, folder, [python, "-c", inside])).output, "fine\n");
    assert.match((await run(sandboxes.none, folder, [python, "-c", inside])).output, /Address family not supported/);
  });

  it("runs a program that reserves more memory than the limit", async () => {
    // Maps memory as a WebAssembly module does: 10 GiB, private, without access rights, without swap reservation.
    const script = "import mmap\nmmap.mmap(-1, 10 << 30, flags=0x4022, prot=0)\nprint('fine')";
    const { output } = await run(sandboxes.on, folder, [python, "-c", script]);
    assert.equal(output, "fine\n");
  });

  it("ends a fork bomb, and the server goes on", async () => {
    const bomb = "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass";
    const { limit } = await run(sandboxes.on, folder, [python, "-c", bomb], 3000);
    assert.equal(limit, "processes");
    assert.equal((await run(sandboxes.on, folder, ["/bin/echo", "fine"])).output, "fine\n");
  });

  it("ends a command that takes too much memory, in one piece or in many processes", async () => {
    const one = await run(sandboxes.on, folder, [python, "-c", "x = bytearray(10 * 2 ** 30)\nprint('ESCAPED')"]);
    assert.doesNotMatch(one.output, /ESCAPED/);
    const many =
      "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = b'x' * (100 * 2 ** 20)\n        time.sleep(10)\n        os._exit(0)\ntime.sleep(3)\nos.system('ps 2>/dev/null | grep -c python')\ntime.sleep(3)";
    const { limit } = await run(sandboxes.on, folder, [python, "-c", many], 10_000);
    assert.equal(limit, "memory");
  });

  it("ends a command that fills the disk, with bytes or with files, anywhere", async () => {
    for (const path of ["/work", "/tmp", "/dev/shm"]) {
      const full = await run(sandboxes.on, folder, [
        "/bin/sh",
        "-c",
        `for i in 1 2 3 4 5 6 7 8; do head -c 30000000 /dev/zero > ${path}/f$i; done; sleep 5; echo ESCAPED`,
      ]);
      assert.equal(full.limit, "disk", path);
      assert.doesNotMatch(full.output, /ESCAPED/);
      await run(sandboxes.on, folder, ["/bin/sh", "-c", `rm -f ${path}/f*`]).catch(() => {});
      for (const name of ["work", "work.tmp", "work.tmp/.shm"])
        rmSync(join(folder, "..", name), { recursive: true, force: true });
      mkdirSync(folder, { recursive: true });
    }
    const files =
      "import os\nos.makedirs('many', exist_ok=True)\nfor i in range(10 ** 7):\n    open(f'many/{i}', 'w').close()\nprint('ESCAPED')";
    const many = await run(sandboxes.on, folder, [python, "-c", files], 60_000);
    assert.equal(many.limit, "disk");
    rmSync(join(folder, "many"), { recursive: true, force: true });
  });

  it("ends a command that hides what it writes in deleted files", async () => {
    const script =
      "import os, time\nfiles = []\nfor i in range(8):\n    files.append(open(f'hidden{i}', 'wb'))\n    os.remove(f'hidden{i}')\n    files[-1].write(b'x' * 30000000)\ntime.sleep(5)\nprint('ESCAPED')";
    const { limit, output } = await run(sandboxes.on, folder, [python, "-c", script]);
    assert.deepEqual([limit, output], ["disk", ""]);
  });

  it("ends a process whose child fills the disk while nobody waits for it", async () => {
    const script =
      "import subprocess, sys\nsubprocess.Popen(['/bin/sh', '-c', 'sleep 3; for i in 1 2 3 4; do head -c 30000000 /dev/zero > /work/late$i; done; sleep 60'])\nsys.stdin.read()";
    const running = sandboxes.on.launch({ argv: [python, "-c", script], workFolder: folder, readable: prefixes });
    running.isWatched = false;
    const timer = setTimeout(() => void running.kill(), 20_000);
    assert.equal((await running.exited).limit, "disk");
    clearTimeout(timer);
    for (let i = 1; i <= 4; i++) rmSync(join(folder, `late${i}`), { force: true });
  });

  it("leaves no daemon behind", async () => {
    const marker = join(folder, "alive");
    const daemon = `(setsid sh -c 'while true; do date +%N > /work/alive; sleep 0.05; done' >/dev/null 2>&1 &) ; sleep 0.3`;
    const { code } = await run(sandboxes.on, folder, ["/bin/sh", "-c", daemon]);
    assert.equal(code, 0);
    assert.ok(existsSync(marker), "the daemon did run");
    const last = readFileSync(marker, "utf8");
    await sleep(300);
    assert.equal(readFileSync(marker, "utf8"), last, "the daemon does not run any more");
  });

  it("gives a command an environment that has nothing of the server", async () => {
    const { output } = await run(sandboxes.on, folder, ["/usr/bin/env"]);
    assert.deepEqual(
      output
        .trim()
        .split("\n")
        .map((line) => line.split("=")[0])
        .sort(),
      ["HOME", "LANG", "PATH", "PWD", "TERM", "TMPDIR", "USER"],
    );
  });

  it("has no zombies and no control groups left", async () => {
    await run(sandboxes.on, folder, ["/bin/true"]);
    await sleep(200);
    const zombies = spawnSync("ps", ["--ppid", String(process.pid), "-o", "stat="], { encoding: "utf8" }).stdout.split(
      "\n",
    );
    assert.deepEqual(
      zombies.filter((state) => state.startsWith("Z")),
      [],
    );
    const groups = spawnSync("find", ["/sys/fs/cgroup", "-maxdepth", "5", "-name", `troupe-${process.pid}-*`], {
      encoding: "utf8",
    });
    assert.equal(groups.stdout, "");
  });

  it("costs little time", async () => {
    const median = (values: number[]) => values.sort((a, b) => a - b)[Math.floor(values.length / 2)] ?? 0;
    const times = { on: [] as number[], off: [] as number[] };
    for (let i = 0; i < 15; i++) {
      for (const mode of ["on", "off"] as const)
        times[mode].push((await run(sandboxes[mode], folder, ["/bin/true"])).ms);
    }
    const more = median(times.on) - median(times.off);
    assert.ok(more < 30, `${more.toFixed(1)} ms more than without the sandbox`);
  });

  it("is an error without isolation in mode on, and a warning in mode auto", () => {
    const without = () => inspectIsolation(null);
    assert.throws(() => openSandbox(settings, () => {}, without), /config_invalid|apt-get install bubblewrap/);
    const warnings: string[] = [];
    const sandbox = openSandbox({ ...settings, mode: "auto" }, (_fields, message) => warnings.push(message), without);
    assert.deepEqual([sandbox.isolation.kind, warnings.length], ["none", 1]);
    return sandbox.close();
  });
});
