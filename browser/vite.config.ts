// Build of the engine for browsers, into dist/browser: the page worker, its compute threads, the GPU worker and the WASM
// modules. The engine's sources are unchanged; modules of Node.js are replaced by the files in node/.
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vite";
import { compressed } from "../ui/compressed.ts";

const folder = fileURLToPath(new URL("./node/", import.meta.url));
const output = fileURLToPath(new URL("../dist/browser", import.meta.url));
/** Files in node/ that do not replace a module of Node.js. */
const own = ["globals", "files"];

/** Files of the engine that files in grammar/ replace. */
const replaced = ["sleep", "load-library"].map((name) => ({
  find: new RegExp(`^\\./${name}\\.ts$`),
  replacement: fileURLToPath(new URL(`./grammar/${name}.ts`, import.meta.url)),
}));

/** Modules of Node.js to which the grammar library refers, but which it loads only in Node.js. */
const unused = [{ find: /^(?:url|module)$/, replacement: `${folder}module.ts` }];

/** Aliases such as `node:fs/promises` -> node/fs-promises.ts and `node:worker_threads` -> node/worker-threads.ts. */
const aliases = readdirSync(folder)
  .map((name) => name.replace(/\.ts$/, ""))
  .filter((name) => !own.includes(name))
  .map((name) => ({
    find: new RegExp(`^node:${name.replace("-", "[/_]")}(?:/strict)?$`),
    replacement: `${folder}${name}.ts`,
  }));

/**
 * Rewrites the URLs of workers and WASM modules in the engine, which are relative to the compiled file. Workers are bundled
 * from their sources, and WASM modules are read by name from the table of files.
 */
function engineAddresses(): Plugin {
  return {
    name: "engine-addresses",
    enforce: "pre",
    transform: {
      filter: { id: /\/engines\/.*\.ts$/, code: "import.meta.url" },
      handler: (code) =>
        code
          .replace(/new URL\("([^"]+)\.js", import\.meta\.url\)/g, 'new URL("$1.ts", import.meta.url)')
          .replace(/(\.wasm["`]), import\.meta\.url\)/g, "$1, self.location.href)"),
    },
  };
}

export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  base: "./",
  publicDir: false,
  resolve: { alias: [...replaced, ...aliases, ...unused] },
  plugins: [engineAddresses(), compressed(output)],
  worker: { format: "es", plugins: () => [engineAddresses()] },
  build: {
    outDir: output,
    emptyOutDir: true,
    assetsDir: "",
    target: "es2022",
    modulePreload: false,
    reportCompressedSize: false,
    chunkSizeWarningLimit: 8192,
    license: { fileName: "licenses.engine.txt" },
    rolldownOptions: {
      // The compression takes most of the build time, which is no problem.
      checks: { bundlerTimings: false },
      input: ["page-worker", "gpu-worker"].map((name) => fileURLToPath(new URL(`./${name}.ts`, import.meta.url))),
      output: { entryFileNames: "[name].js" },
    },
  },
});
