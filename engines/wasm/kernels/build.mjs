// Compiles the kernels for both targets at once: each keeps one core busy for half a minute. Plain JavaScript, since it runs
// while the program is built.
import { spawn } from "node:child_process";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const folder = dirname(fileURLToPath(import.meta.url));
const config = join(folder, "asconfig.json");
const require = createRequire(import.meta.url);
const compiler = join(dirname(require.resolve("assemblyscript/package.json")), "bin", "asc.js");

for (const target of Object.keys(require(config).targets)) {
  const argv = [compiler, join(folder, "kernels.ts"), "--config", config, "--target", target];
  const child = spawn(process.execPath, argv, { stdio: "inherit" });
  child.on("exit", (code) => {
    if (code !== 0) process.exitCode = 1;
  });
}
