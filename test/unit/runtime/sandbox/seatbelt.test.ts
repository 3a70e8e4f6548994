// Profile of Seatbelt, and on a Mac the sandbox itself.
import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, realpathSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { openSandbox } from "../../../../runtime/sandbox/open-sandbox.ts";
import { seatbeltProblem, seatbeltProfile } from "../../../../runtime/sandbox/seatbelt.ts";

const base = realpathSync(mkdtempSync(join(tmpdir(), "troupe-seatbelt-test-")));
after(() => rmSync(base, { recursive: true, force: true }));

/** Rules of a profile that begin with the words. */
const rules = (profile: string, words: string): readonly string[] =>
  profile.split("\n").filter((line) => line.startsWith(`(${words}`));

describe("the profile of Seatbelt", () => {
  it("allows writing only in the folders of the command, whatever their names, and without links", () => {
    const folder = join(base, 'a "quoted\\ name');
    mkdirSync(folder);
    symlinkSync(folder, join(base, "link"));
    const profile = seatbeltProfile({ network: "none", writable: [join(base, "link")], readable: [] });
    assert.deepEqual(rules(profile, "allow file-write*"), [
      `(allow file-write* (subpath "${base}/a \\"quoted\\\\ name") (literal "/dev/null") (literal "/dev/zero"))`,
    ]);
    assert.ok(profile.indexOf("(deny file-write*)") < profile.indexOf("(allow file-write*"), "later rules win");
  });

  it("allows reading the system, the folders of the command and those that it names, but no homes", () => {
    const profile = seatbeltProfile({ network: "none", writable: [base], readable: ["/opt/python"] });
    const [reads = ""] = rules(profile, "allow file-read* ");
    for (const path of ["/usr", "/opt/python", base]) assert.ok(reads.includes(`(subpath "${path}")`), path);
    assert.doesNotMatch(reads, /Users|"\/"\)? \(subpath "\/"|\/private\/tmp"/);
  });

  it("refuses the network, or with `full` only the sockets of this machine", () => {
    const of = (network: "none" | "loopback" | "full") =>
      rules(seatbeltProfile({ network, writable: [], readable: [] }), "deny network");
    assert.deepEqual(of("none"), ["(deny network*)"]);
    assert.deepEqual(of("loopback"), ["(deny network*)"]);
    assert.deepEqual(of("full"), ["(deny network-outbound (remote unix-socket))"]);
  });
});

describe("Seatbelt", { skip: process.platform !== "darwin" && "only on macOS" }, () => {
  it("holds in its trial", () => assert.equal(seatbeltProblem(), null));

  it("keeps a command from files of others, from other processes and from the network", async () => {
    const work = join(base, "work");
    mkdirSync(work);
    const secret = join(base, "secret");
    writeFileSync(secret, "secret");
    const server = createServer((socket) => socket.end("hello"));
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as { readonly port: number };
    const limits = { maxMemoryMb: 256, maxCpuSecs: 10, maxProcs: 32, maxDiskMb: 64 };
    const sandbox = openSandbox({ mode: "on", profile: "developer", network: "none", ...limits }, () => {});
    try {
      for (const [script, isAllowed] of [
        ["echo in > in.txt && cat in.txt && ls /usr/bin > /dev/null", true],
        [`cat '${secret}'`, false],
        [`ls '${base}'`, false],
        [`echo x > '${base}/out.txt'`, false],
        [`ln -s '${secret}' link; cat link`, false],
        [`kill -0 ${process.pid}`, false],
        [`nc -z 127.0.0.1 ${port}`, false],
        ["osascript -e 'tell application \"Finder\" to get name'", false],
        ["security list-keychains", false],
      ] as const) {
        const running = sandbox.launch({ argv: ["/bin/sh", "-c", script], workFolder: work });
        running.stdin.end();
        running.stdout.resume();
        running.stderr.resume();
        const { code } = await running.exited;
        assert.equal(code === 0, isAllowed, script);
      }
    } finally {
      await sandbox.close();
      server.close();
    }
  });
});
