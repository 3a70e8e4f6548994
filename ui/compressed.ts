// Compressed files of a build, so that the server compresses nothing.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants } from "node:zlib";
import type { Plugin } from "vite";

/** Smaller files are served as they are. */
const MIN_COMPRESSED_BYTES = 1024;

/** Writes a brotli file beside each text file of the folder `output`. */
export function compressed(output: string): Plugin {
  return {
    name: "compressed",
    apply: "build",
    writeBundle() {
      for (const name of readdirSync(output)) {
        if (!/\.(?:js|css|html|svg|json|txt|wasm)$/.test(name)) continue;
        const content = readFileSync(join(output, name));
        if (content.length < MIN_COMPRESSED_BYTES) continue;
        const params = { [constants.BROTLI_PARAM_QUALITY]: 11, [constants.BROTLI_PARAM_SIZE_HINT]: content.length };
        writeFileSync(join(output, `${name}.br`), brotliCompressSync(content, { params }));
      }
    },
  };
}
