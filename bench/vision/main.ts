// `bench vision`: speed of image input. First the image encoder is compared with llama.cpp's multimodal library, then chats about one
// image are measured, then a text stream while images are encoded. All encoders have random weights.
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import arg from "arg";
import { pngOf } from "../../engines/diffusion/png.ts";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { ImageEncoder } from "../../engines/wasm/vision/image-encoder.ts";
import { writeTinyProjector } from "../../test/fixtures/image-input/tiny-projector.ts";
import { writeTinyArchitecture } from "../../test/fixtures/models/tiny-architectures.ts";
import { type RunningServer, startServer } from "../../test/fixtures/serve.ts";
import { atLeast, atMost, exactly, type Finding, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { percentiles } from "../serving/client/statistics.ts";
import { gapsOf } from "../stream-gaps.ts";

export const usage = `npm run bench -- vision [FLAGS]: images as input

  --peer PROGRAM   program of test/fixtures/image-input/mtmd-reference.cpp, which times llama.cpp's encoder
  --rounds 3       rounds of the encoders, which alternate
  --save           write bench/results/vision.md
`;

const side = 448;
const encodesPerRound = 3;
const chats = 32;
const streamTokens = 300;
/** Dimensions of the SigLIP-base encoder. */
const siglip = { width: 768, heads: 12, layers: 12, feedForward: 3072, patchSize: 16, imageSize: side, mergeSide: 4 };
/**
 * Dimensions of the encoder of SmolVLM-256M, a vision model built on SmolLM2-135M. An image is cut into 4 x 4 tiles; one more tile is the
 * whole image, scaled down.
 */
const smolvlm = { ...siglip, imageSize: 512, gridEdge: 2048 };
/** Number of prompt tokens of an image in SmolVLM, without the text tokens between the tiles. */
const imageTokens = 17 * (smolvlm.imageSize / smolvlm.patchSize / smolvlm.mergeSide) ** 2;
/** Hidden size of SmolLM2-135M. */
const chatLength = 576;

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg({ "--peer": String, "--rounds": Number, "--save": Boolean }, { argv: [...argv] });
  const folder = mkdtempSync(join(tmpdir(), "troupe-bench-vision-"));
  const load = loadavg()[0]?.toFixed(1);
  try {
    const findings = await encoders(folder, flags["--rounds"] ?? 3, flags["--peer"] ?? null);
    const projector = join(folder, "smolvlm.gguf");
    await writeTinyProjector(projector, { ...smolvlm, projector: "idefics3", seed: 1, length: chatLength });
    const named = ["-m", defaultPackage, "--alias", "chat", "--mmproj", projector, "--threads", "2"];
    const server = await startServer([...named, "--engine", "wasm", "--speculation", "off"]);
    try {
      findings.push(...(await chatsAbout(server)), ...(await streamBeside(server)));
    } finally {
      await server.stop();
    }
    const method =
      `Images of ${side} x ${side}, 2 threads, random weights. Encoder: of the size of SigLIP-base in F16, the shortest of ` +
      `${encodesPerRound} encodes of each round. Chats: SmolLM2-135M on the wasm engine with an encoder of the sizes of SmolVLM-256M: ` +
      `17 tiles of 512 x 512 an image. Load of the ` +
      `machine by other programs at the beginning (load average of a minute): ${load}.`;
    report(
      { name: "vision", title: "Images as input", method, body: findingsTable("vision", findings) },
      flags["--save"] ?? false,
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function encoders(folder: string, rounds: number, peer: string | null): Promise<Finding[]> {
  const [projector, text, pixelFile] = ["siglip.gguf", "text.gguf", "pixels.rgb"].map((name) => join(folder, name)) as [
    string,
    string,
    string,
  ];
  const length = 128;
  await writeTinyArchitecture(text, "gemma3", { seed: 5, lastTokens: ["<start_of_image>", "<end_of_image>"] });
  await writeTinyProjector(projector, { ...siglip, projector: "gemma3", seed: 1, length });
  const pixels = Uint8Array.from({ length: side * side * 3 }, (_, i) => (i * 31) % 251);
  writeFileSync(pixelFile, pixels);
  const [ours, theirs]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    ours.push(await ourEncode(projector, pixels));
    if (peer !== null)
      theirs.push(
        await peerEncode(peer, [text, projector, `${side}x${side}`, pixelFile, "<__media__>", join(folder, "out")]),
      );
  }
  const shown = (times: readonly number[]) => times.map((ms) => ms.toFixed(0)).join(", ");
  const measured = [told("encode: milliseconds", shown(ours))];
  if (peer === null) return measured;
  const ratios = theirs.map((ms, i) => ms / (ours[i] as number)).sort((a, b) => a - b);
  const median = ratios[Math.floor(ratios.length / 2)] as number;
  return [
    ...measured,
    told("llama.cpp: milliseconds", shown(theirs)),
    atLeast("llama.cpp's time over ours, median", median, 0.8),
  ];
}

async function ourEncode(projector: string, pixels: Uint8Array): Promise<number> {
  const encoder = await ImageEncoder.load(projector, 2);
  let least = Number.POSITIVE_INFINITY;
  for (let i = 0; i < encodesPerRound; i++) {
    const startMs = performance.now();
    encoder.encode({ width: side, height: side, pixels });
    least = Math.min(least, performance.now() - startMs);
  }
  await encoder.dispose();
  return least;
}

async function peerEncode(program: string, args: readonly string[]): Promise<number> {
  const env = { ...process.env, ENCODES: String(encodesPerRound) };
  const { stderr } = await promisify(execFile)(program, args, { env });
  const times = [...stderr.matchAll(/^encode ([\d.]+) ms$/gm)].map(([, ms]) => Number(ms));
  if (times.length !== encodesPerRound) throw new Error(`${program} printed no times: ${stderr.slice(0, 300)}`);
  return Math.min(...times);
}

/** Returns the data URL of a picture with a single colour. */
function picture(red: number): string {
  const data = new Uint8Array(side * side * 3);
  for (let at = 0; at < data.length; at += 3) data.set([red, 128, 255], at);
  return `data:image/png;base64,${Buffer.from(pngOf({ width: side, height: side, data })).toString("base64")}`;
}

/** Asks about an image. Returns the time to the first and only token, in ms. */
async function ask({ url }: RunningServer, image: string, question: string): Promise<number> {
  const content = [
    { type: "image_url", image_url: { url: image } },
    { type: "text", text: question },
  ];
  const startMs = performance.now();
  const reply = await fetch(`${url}/v1/chat/completions`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "chat", messages: [{ role: "user", content }], max_tokens: 1 }),
  });
  const text = await reply.text();
  if (!reply.ok) throw new Error(text);
  return performance.now() - startMs;
}

async function chatsAbout(server: RunningServer): Promise<Finding[]> {
  const image = picture(64);
  const coldMs = await ask(server, image, "What is it?");
  const againMs = await ask(server, image, "What is it?");
  const many = await Promise.all(Array.from({ length: chats }, (_, i) => ask(server, image, `Question ${i}`)));
  const metrics = await (await fetch(`${server.url}/metrics`)).text();
  const encoded = Number(/^service_encoder_cache_misses_total (\d+)$/m.exec(metrics)?.[1]);
  return [
    told("an image asked about first", `${coldMs.toFixed(0)} ms`),
    atMost("the same question again over the first", againMs / coldMs, 0.15),
    atMost(`${chats} chats about it at once, p50 over the first`, percentiles(many).p50 / coldMs, 0.15),
    atMost(`${chats} chats about it at once, slowest over the first`, Math.max(...many) / coldMs, 0.15),
    exactly("encodes of all these", encoded, 1),
  ];
}

async function streamBeside(server: RunningServer): Promise<Finding[]> {
  const { url } = server;
  await gapsOf(url, 50);
  const alone = percentiles(await gapsOf(url, streamTokens));
  const images = await gapsWhile(url, async (i) => void (await ask(server, picture(i), "What?")));
  const texts = await gapsWhile(url, async (i) => {
    // Each digit and each space between digits is one token, so this prompt has `imageTokens` tokens.
    const prompt = Array.from({ length: imageTokens / 2 }, (_, k) => ((k * (i + 3)) % 7) + (k % 3)).join(" ");
    const body = JSON.stringify({ model: "chat", max_tokens: 1, prompt });
    const headers = { "content-type": "application/json" };
    await (await fetch(`${url}/v1/completions`, { method: "POST", headers, body })).text();
  });
  const shown = ({ p50, p99 }: Pick<Gaps, "p50" | "p99">) => `${p50.toFixed(1)}, ${p99.toFixed(1)} ms`;
  return [
    told("gaps of a text stream alone: p50, p99", shown(alone)),
    told("gaps beside images, one after the other", `${shown(images)} (${images.count} images)`),
    told(`gaps beside text prompts of ${imageTokens} tokens`, `${shown(texts)} (${texts.count} prompts)`),
    atMost("p99 gap beside images over alone", images.p99 / alone.p99, 2),
  ];
}

interface Gaps {
  readonly p50: number;
  readonly p99: number;
  /** Number of tasks that ran during the stream. */
  readonly count: number;
}

/** Measures the pauses of a text stream while tasks run one after another. */
async function gapsWhile(url: string, task: (index: number) => Promise<void>): Promise<Gaps> {
  let isStreaming = true;
  let count = 0;
  const tasks = (async () => {
    while (isStreaming) await task(count++);
  })();
  await sleep(500);
  const { p50, p99 } = percentiles(await gapsOf(url, streamTokens));
  isStreaming = false;
  await tasks;
  return { p50, p99, count };
}
