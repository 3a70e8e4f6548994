import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, it } from "node:test";
import { installCommand, isInstalled } from "../../../../runtime/host/optional-packages.ts";

describe("a package that is installed by name", () => {
  const folder = mkdtempSync(join(tmpdir(), "troupe-optional-"));
  const own = join(folder, "node_modules", "troupe");
  mkdirSync(own, { recursive: true });
  after(() => rmSync(folder, { recursive: true }));

  it("is found where it is installed", () => {
    assert.ok(isInstalled("pino"));
    assert.ok(!isInstalled("no-such-package"));
  });

  it("is named with its version, and with the folder if that is not the current one", () => {
    assert.match(installCommand(["node-llama-cpp"], process.cwd()), /^npm install node-llama-cpp@\d+\.\d+\.\d+$/);
    writeFileSync(join(folder, "package.json"), "{}");
    const command = installCommand(["node-llama-cpp", "@opentelemetry/api"], own);
    assert.match(command, /^npm install node-llama-cpp@\S+ @opentelemetry\/api@\S+ \(in /);
    assert.ok(command.endsWith(`(in ${folder})`));
  });

  it("is installed without install scripts if the documents say so", () => {
    const commandOf = (...names: string[]) => installCommand(names, process.cwd());
    assert.match(commandOf("onnxruntime-node"), /^npm install onnxruntime-node@\S+ --ignore-scripts$/);
    assert.match(
      commandOf("onnxruntime-node", "audio-decode"),
      /^npm install onnxruntime-node@\S+ audio-decode@\S+ --ignore-scripts$/,
    );
    for (const name of ["sharp", "node-llama-cpp", "redis"]) assert.doesNotMatch(commandOf(name), /ignore-scripts/);
  });

  it("is installed globally if troupe is", () => {
    rmSync(join(folder, "package.json"), { force: true });
    assert.match(installCommand(["node-llama-cpp"], own), /^npm install --global node-llama-cpp@\S+$/);
  });
});
