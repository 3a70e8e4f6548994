// Build of the web UI: a single page with a small initial bundle; other code is loaded when it is needed. All URLs are
// relative, because a proxy may serve the server under a path prefix.
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
    license: { fileName: "licenses.txt" },
    // Disables a warning: compressing the files takes most of the build time, as intended.
    rolldownOptions: { checks: { bundlerTimings: false } },
  },
});
