// Image decoder: decodes an encoded image and cuts it into tiles, in a process of its own (cut-image.ts) that is ended at
// its limits of time and memory.
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { inOneLine, ServerError } from "../../runtime/errors.ts";
import { runLimitedProgram } from "../../runtime/program/limited-program.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { TilingRules } from "../files/projector.ts";
import type { Tile } from "../wasm/vision/image-encoder.ts";
import type { CutHead } from "./cut-image.ts";

/** Limits of one image. The pixels of its tiles are the output. */
const limits = {
  timeMs: 30_000,
  cpuSeconds: 30,
  memoryBytes: 1024 * 2 ** 20,
  heapMiB: 256,
  outputBytes: 512 * 2 ** 20,
};
/** Number of images that are decoded at once. */
const places = 2;
/** Maximum number of pixels of an image; larger ones are refused before they are decoded. */
export const maxPixels = 64 * 2 ** 20;
const maxErrorLength = 300;

const program = fileURLToPath(new URL("./cut-image.js", import.meta.url));
const require = createRequire(import.meta.url);
const gate = new Gate(places);

export interface CutImage {
  readonly grid: CutHead["grid"];
  readonly tiles: readonly Tile[];
}

/** Throws `config_invalid` if the library that decodes images is not installed. */
export function checkImageLibrary(): void {
  try {
    require.resolve("sharp");
  } catch (cause) {
    const message = "mmproj needs the package sharp, which decodes images: npm install sharp@0.35.5";
    throw new ServerError("config_invalid", message, { param: "mmproj", cause });
  }
}

/**
 * Decodes an image. `maxEdge`: longest edge in pixels, to which a larger image is scaled; null: none. Throws
 * `invalid_value` if the bytes are no image, or exceed a limit.
 */
export async function cutImage(
  bytes: Uint8Array,
  rules: TilingRules,
  maxEdge: number | null,
  client: string,
): Promise<CutImage> {
  return await gate.pass(() => run(bytes, rules, maxEdge), client);
}

async function run(bytes: Uint8Array, rules: TilingRules, maxEdge: number | null): Promise<CutImage> {
  const args = [`--rules=${JSON.stringify(rules)}`, `--maxPixels=${maxPixels}`, `--maxEdge=${maxEdge ?? 0}`];
  const { output, failure } = await runLimitedProgram(program, { args, limits, input: bytes });
  if (failure === null) return parsed(output);
  throw undecodable(inOneLine(failure).slice(0, maxErrorLength));
}

function parsed(output: Buffer): CutImage {
  const end = output.indexOf("\n");
  const { grid, sizes } = JSON.parse(output.toString("utf8", 0, end)) as CutHead;
  let at = end + 1;
  const tiles = sizes.map(({ width, height }) => {
    const pixels = new Uint8Array(output.subarray(at, at + width * height * 3));
    at += width * height * 3;
    return { width, height, pixels };
  });
  if (output.length !== at) throw undecodable("its pixels are incomplete");
  return { grid, tiles };
}

function undecodable(reason: string): ServerError {
  const message =
    `the image cannot be decoded: ${reason}; expected an undamaged PNG, JPEG, WebP, GIF, AVIF, TIFF or SVG of at most ` +
    `${maxPixels} pixels: convert it, and send it again`;
  return new ServerError("invalid_value", message);
}
