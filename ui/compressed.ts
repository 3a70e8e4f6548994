// Vite plugin that compresses the files of a build, so that the server does not have to.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { brotliCompressSync, constants } from "node:zlib";
import type { Plugin } from "vite";

/** Minimum size in bytes of files to compress. Smaller files are served uncompressed. */
const MIN_COMPRESSED_BYTES = 1024;

/** Writes a brotli-compressed copy of each text file in the folder `output`, next to the original. */
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
