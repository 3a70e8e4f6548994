// Build of the web UI: one page with a small first bundle; everything else is loaded when it is used. All addresses are relative,
// because a proxy may serve the server under a path prefix.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { brotliCompressSync, constants } from "node:zlib";
import preact from "@preact/preset-vite";
import { defineConfig, type Plugin } from "vite";

const output = fileURLToPath(new URL("../dist/ui", import.meta.url));

/** Smaller files are served as they are. */
const MIN_COMPRESSED_BYTES = 1024;

/** Writes a brotli file beside each text file, so that the server compresses nothing. */
function compressed(): Plugin {
  return {
    name: "compressed",
    apply: "build",
    closeBundle() {
      for (const name of readdirSync(output)) {
        if (!/\.(?:js|css|html|svg|json|txt)$/.test(name)) continue;
        const content = readFileSync(join(output, name));
        if (content.length < MIN_COMPRESSED_BYTES) continue;
        const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: content.length };
        writeFileSync(join(output, `${name}.br`), brotliCompressSync(content, { params }));
      }
    },
  };
}

export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  base: "./",
  publicDir: false,
  plugins: [preact({ devToolsEnabled: false, prefreshEnabled: false }), compressed()],
  build: {
    outDir: output,
    emptyOutDir: true,
    assetsDir: "",
    target: "es2022",
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 4096,
    // The style sheet allows no inlined images of other origins; small ones are inlined as data.
    license: { fileName: "licenses.txt" },
  },
});
