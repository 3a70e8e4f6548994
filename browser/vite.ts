// Build of the engine for browsers: Vite options with which the sources of the engine become web workers. Modules of Node.js are
// replaced by the files of node/.
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import type { Plugin, UserConfig } from "vite";

const folder = fileURLToPath(new URL("./node/", import.meta.url));
/** Files of node/ that are no modules of Node.js. */
const own = ["globals", "files"];

const modules = readdirSync(folder)
  .map((name) => name.replace(/\.ts$/, ""))
  .filter((name) => !own.includes(name));

/** Addresses of workers name the compiled file, and those of WASM modules are read from the table of files. */
function engineSources(): Plugin {
  return {
    name: "engine-sources",
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

export function engineOptions() {
  return {
    resolve: {
      alias: modules.map((name) => ({
        find: new RegExp(`^node:${name === "assert" ? "assert(?:/strict)?" : name.replace(/^(fs|timers)-/, "$1/").replace("-", "_")}$`),
        replacement: `${folder}${name}.ts`,
      })),
    },
    worker: { format: "es", plugins: () => [engineSources()] },
  } satisfies UserConfig;
}
