// Image decoder: decodes an encoded image and cuts it into tiles, in a separate process (cut-image.ts) with limits of time and memory.
import { fileURLToPath } from "node:url";
import { inOneLine, ServerError } from "../../runtime/errors.ts";
import { installCommand, isInstalled } from "../../runtime/host/optional-packages.ts";
import { runLimitedProgram } from "../../runtime/program/limited-program.ts";
import { Gate } from "../../runtime/queues/gate.ts";
import type { TilingRules } from "../files/projector/image-rules.ts";
import type { Tile } from "../wasm/vision/image-encoder.ts";
import type { CutHead } from "./cut-image.ts";
import { splitOutput } from "./image-program.ts";

/** Limits for one image. The output is the pixels of its tiles. */
const limits = {
  timeMs: 30_000,
  cpuSeconds: 30,
  memoryBytes: 1024 * 2 ** 20,
  heapMiB: 256,
  outputBytes: 512 * 2 ** 20,
};
/** Maximum number of images that are decoded at the same time. */
const maxDecodes = 2;
/** Maximum number of pixels of an image; larger ones are refused before they are decoded. */
export const maxPixels = 64 * 2 ** 20;
const maxErrorLength = 300;

const program = fileURLToPath(new URL("./cut-image.js", import.meta.url));
const gate = new Gate(maxDecodes);

export interface CutImage {
  readonly grid: CutHead["grid"];
  readonly tiles: readonly Tile[];
}

/** Throws `config_invalid` if the library that decodes images is not installed. `param`: the setting that asks for images. */
export function checkImageLibrary(param: "mmproj" | "kind"): void {
  if (isInstalled("sharp")) return;
  const what = param === "kind" ? "kind multimodal" : param;
  const message = `${what} needs the package sharp, which decodes images: ${installCommand(["sharp"])}`;
  throw new ServerError("config_invalid", message, { param });
}

export interface CutOptions {
  readonly client: string;
  /** Longest edge in pixels, to which a larger image is scaled; null = no limit. */
  readonly maxEdge: number | null;
  /** Whether the image is a frame of a video, which becomes a single tile, as in the training of the models. */
  readonly isFrame: boolean;
}

/** Decodes an image and cuts it into tiles. Throws `invalid_value` if the bytes are not an image, or exceed a limit. */
export async function cutImage(bytes: Uint8Array, rules: TilingRules, options: CutOptions): Promise<CutImage> {
  return await gate.pass(() => run(bytes, rules, options), options.client);
}

async function run(bytes: Uint8Array, rules: TilingRules, { maxEdge, isFrame }: CutOptions): Promise<CutImage> {
  const edges = [maxEdge, rules.variable?.maxEdge ?? null].filter((edge) => edge !== null);
  const longest = edges.length > 0 ? Math.min(...edges) : 0;
  const args = [`--rules=${JSON.stringify(rules)}`, `--maxPixels=${maxPixels}`, `--maxEdge=${longest}`];
  if (isFrame) args.push("--isFrame");
  const { output, failure } = await runLimitedProgram(program, { args, limits, input: bytes });
  if (failure === null) return parsed(output);
  throw undecodable(inOneLine(failure).slice(0, maxErrorLength));
}

function parsed(output: Buffer): CutImage {
  const { head, body } = splitOutput<CutHead>(output);
  let at = 0;
  const tiles = head.sizes.map(({ width, height }) => {
    const pixels = new Uint8Array(body.subarray(at, at + width * height * 3));
    at += width * height * 3;
    return { width, height, pixels };
  });
  if (body.length !== at) throw undecodable("its pixels are incomplete");
  return { grid: head.grid, tiles };
}

function undecodable(reason: string): ServerError {
  const message =
    `the image cannot be decoded: ${reason}; expected an undamaged PNG, JPEG, WebP, GIF, AVIF, TIFF or SVG of at most ` +
    `${maxPixels} pixels: convert it, and send it again`;
  return new ServerError("invalid_value", message);
}
