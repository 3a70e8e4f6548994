import { fileURLToPath } from "node:url";
import { defineConfig } from "vite";
import { engineOptions } from "../../browser/vite.ts";
const here = fileURLToPath(new URL(".", import.meta.url));
export default defineConfig({
  root: here, base: "./", publicDir: false, ...engineOptions(),
  build: { outDir: "/tmp/benchpage", emptyOutDir: true, target: "es2022", minify: false, rollupOptions: { input: `${here}page.html` } },
});
