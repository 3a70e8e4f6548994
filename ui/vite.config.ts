// Build of the web UI: one page with a small first bundle; everything else is loaded when it is used. All addresses are relative,
// because a proxy may serve the server under a path prefix.
import { fileURLToPath } from "node:url";
import preact from "@preact/preset-vite";
import { defineConfig } from "vite";
import { compressed } from "./compressed.ts";

const output = fileURLToPath(new URL("../dist/ui", import.meta.url));

export default defineConfig({
  root: fileURLToPath(new URL(".", import.meta.url)),
  base: "./",
  publicDir: false,
  plugins: [preact({ devToolsEnabled: false, prefreshEnabled: false }), compressed(output)],
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
    // The compression takes most of the time, which is not a fault.
    rolldownOptions: { checks: { bundlerTimings: false } },
  },
});
