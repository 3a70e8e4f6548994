// Build: compiles the program (or, with --all, also the tests and benchmarks) into dist/, and the WASM modules, the web UI and
// the engine for browsers if they are older than their sources. With --clean, dist/ is emptied first, because it keeps the
// output of deleted sources; this is for publishing. This file is plain JavaScript, because it runs before anything is
// compiled.
import { spawn } from "node:child_process";
import { existsSync, mkdirSync, readdirSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = dirname(dirname(fileURLToPath(import.meta.url)));
const require = createRequire(import.meta.url);
const tsc = join(dirname(require.resolve("typescript/package.json")), "bin", "tsc");
const asc = join(dirname(require.resolve("assemblyscript/package.json")), "bin", "asc.js");

/**
 * WASM modules. Each has the folder of its sources, the file to compile, and the targets in asconfig.json. `shared` is another
 * folder whose sources the module imports.
 */
const modules = [
  {
    folder: "engines/decoding/sampler/kernel",
    entry: "sampler.ts",
    outputs: { "": "engines/decoding/sampler/sampler" },
  },
  {
    folder: "engines/wasm/kernels",
    entry: "kernels.ts",
    outputs: { relaxed: "engines/wasm/kernels/kernels-relaxed", plain: "engines/wasm/kernels/kernels-plain" },
  },
  {
    folder: "engines/quantization/codec/kernels",
    shared: "engines/wasm/kernels",
    entry: "codec.ts",
    outputs: { "": "engines/quantization/codec/block-codec" },
  },
];

/** Runs a script with Node.js. Resolves to whether it succeeded. */
function run(argv) {
  const child = spawn(process.execPath, argv, { cwd: root, stdio: "inherit" });
  return new Promise((resolve) => child.on("close", (code) => resolve(code === 0)));
}

/** Returns the modification time of the newest file in a folder. */
function newestFile(folder) {
  const entries = readdirSync(folder, { withFileTypes: true, recursive: true });
  return Math.max(
    ...entries.filter((entry) => entry.isFile()).map((entry) => fileTime(join(entry.parentPath, entry.name))),
  );
}

function fileTime(path) {
  return existsSync(path) ? statSync(path).mtimeMs : 0;
}

/** Compiles one WASM module, unless its output is newer than its sources. */
function buildModule({ folder, shared, entry }, target, output) {
  const source = join(root, folder);
  const newest = Math.max(newestFile(source), shared === undefined ? 0 : newestFile(join(root, shared)));
  if (fileTime(join(root, "dist", `${output}.wasm`)) > newest) return true;
  const argv = [asc, join(source, entry), "--config", join(source, "asconfig.json")];
  return run(target === "" ? argv : [...argv, "--target", target]);
}

/** Builds a folder with Vite, unless the output is newer than all files in the source folders. */
function buildForBrowsers(folder, output, sources) {
  if (fileTime(join(root, "dist", output)) > Math.max(...sources.map((name) => newestFile(join(root, name)))))
    return true;
  const vite = join(dirname(require.resolve("vite/package.json")), "bin", "vite.js");
  return run([vite, "build", "--config", join(root, folder, "vite.config.ts"), "--logLevel", "warn"]);
}

/** Builds the WASM modules, then the engine for browsers, which contains them. */
async function buildEngine() {
  const built = await Promise.all(
    modules.flatMap((module) =>
      Object.entries(module.outputs).map(([target, output]) => buildModule(module, target, output)),
    ),
  );
  if (!built.every(Boolean)) return false;
  const sources = ["browser", "runtime", "engines", "actors", "http"];
  return buildForBrowsers("browser", "browser/page-worker.js", sources);
}

if (process.argv.includes("--clean")) rmSync(join(root, "dist"), { recursive: true, force: true });
// Both TypeScript projects write to dist/. The build record of the other project is deleted, because it would become wrong.
const [project, other] = process.argv.includes("--all")
  ? ["tsconfig.json", ".tsbuildinfo-build"]
  : ["tsconfig.build.json", ".tsbuildinfo"];
rmSync(join(root, "dist", other), { force: true });
const start = new Date();
const results = await Promise.all([
  run([tsc, "-p", join(root, project)]),
  buildForBrowsers("ui", "ui/index.html", ["ui"]),
  buildEngine(),
]);
if (!results.every(Boolean)) process.exit(1);
// Time stamp of the build: cli/troupe.mjs builds again if a source is newer than this file.
const stamp = join(root, "dist", ".built");
mkdirSync(dirname(stamp), { recursive: true });
writeFileSync(stamp, "");
utimesSync(stamp, start, start);
