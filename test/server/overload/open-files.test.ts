// Open file limits: a server that cannot accept more connections, and a server that cannot start.
import assert from "node:assert/strict";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { after, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { loadableEdges } from "../../fixtures/http-server.ts";
import { tinyModel } from "../../fixtures/models/models.ts";

const command = fileURLToPath(new URL("../../../../cli/troupe.mjs", import.meta.url));
const limit = 320;

function serve(limit: number, argv: readonly string[]): ChildProcess & { output(): string } {
  const script = `ulimit -n ${limit}; exec "$@"`;
  const child = spawn("bash", ["-c", script, "troupe", process.execPath, command, "serve", "--port", "0", ...argv], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (data) => (output += data));
  return Object.assign(child, { output: () => output });
}

/** Returns the CPU time that a process and its threads have used, in hundredths of a second. */
function ticksOf(pid: number): number {
  const stat = execFileSync("cat", [`/proc/${pid}/stat`], { encoding: "utf8" });
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return Number(fields[11]) + Number(fields[12]);
}

const isLinux = process.platform === "linux";

describe("a server with a low limit of open files", { skip: !isLinux }, () => {
  for (const edge of loadableEdges()) {
    it(`rejects more connections than the limit allows on the ${edge} edge, uses no CPU meanwhile, and serves again`, async () => {
      const model = await tinyModel();
      const small = ["--cpu", "--threads", "1", "--max-model-len", "256", "--state-dir", "none", "--host", "127.0.0.1"];
      const server = serve(limit, ["-m", model, ...small, "--edge", edge]);
      after(() => void server.kill("SIGKILL"));
      let url = "";
      for (let tries = 0; url === ""; tries++) {
        assert.ok(tries < 3000, server.output());
        await sleep(20);
        url = /health\s+(http:\/\/\S+)\/health/.exec(server.output())?.[1] ?? "";
      }
      const { hostname, port } = new URL(url);
      const sockets: Socket[] = [];
      for (let i = 0; i < 2 * limit; i++) {
        const socket = connect(Number(port), hostname);
        socket.on("error", () => {});
        sockets.push(socket);
        if (i % 20 === 0) await sleep(5);
      }
      await sleep(1000);
      const before = ticksOf(server.pid ?? 0);
      await sleep(2000);
      const share = (ticksOf(server.pid ?? 0) - before) / 200;
      assert.ok(share < 0.25, `${share} of a processor while it can take no connection`);
      assert.equal(server.output().split("connections are refused").length - 1, 1, server.output());
      for (const socket of sockets) socket.destroy();
      let status = 0;
      for (let tries = 0; status !== 200; tries++) {
        assert.ok(tries < 50, "it does not serve again");
        await sleep(100);
        status = await fetch(`${url}/health`, { headers: { connection: "close" } }).then(
          (reply) => reply.status,
          () => 0,
        );
      }
      server.kill("SIGTERM");
      assert.equal((await once(server, "exit"))[0], 0, server.output());
    });
  }

  for (const few of [40, 64, 200]) {
    it(`reports how many files it needs if the limit is ${few}`, async () => {
      const server = serve(few, ["-m", await tinyModel(), "--cpu"]);
      const killer = setTimeout(() => server.kill("SIGKILL"), 60_000);
      const [code] = await once(server, "close");
      clearTimeout(killer);
      assert.ok(code === 1 || code === 2, `it ended with ${code}`);
      assert.match(server.output(), /expected a limit of at least 256 open files; got .*ulimit -n 4096/);
      assert.doesNotMatch(server.output(), /\n {4}at /, "a person is shown a stack");
    });
  }
});
