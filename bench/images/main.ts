// `bench images`: compares a text model's stream without other load and during a job of a diffusion model.
import { mkdtempSync, rmSync } from "node:fs";
import { loadavg, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import arg from "arg";
import { defaultPackage } from "../../engines/files/hub/catalog.ts";
import { ddimConfig, writeTinyPipeline } from "../../test/fixtures/diffusion/tiny-pipelines.ts";
import { type RunningServer, startServer } from "../../test/fixtures/serve.ts";
import { atMost, type Finding, findingsTable, told } from "../overload/finding.ts";
import { report } from "../results.ts";
import { percentiles } from "../serving/client/statistics.ts";
import { gapsOf } from "../stream-gaps.ts";

export const usage = `npm run bench -- images [FLAGS]: a text stream during a diffusion job

  --model FOLDER        diffusion model; default: a tiny one with random weights
  --size 512x512        size of the images
  --steps 50            steps of an image
  --stream-tokens 400   tokens of the text stream
  --save                write bench/results/images.md
`;

interface Job {
  readonly size: string;
  readonly steps: number;
}

export async function main(argv: readonly string[]): Promise<void> {
  const flags = arg(
    { "--model": String, "--size": String, "--steps": Number, "--stream-tokens": Number, "--save": Boolean },
    { argv: [...argv] },
  );
  const folder = mkdtempSync(join(tmpdir(), "troupe-bench-images-"));
  const job = { size: flags["--size"] ?? "512x512", steps: flags["--steps"] ?? 50 };
  const load = loadavg()[0]?.toFixed(1);
  try {
    const model = flags["--model"] ?? writeTinyPipeline(join(folder, "sd"), { kind: "sd", config: ddimConfig });
    const named = ["-m", defaultPackage, "--alias", "chat", "-m", model, "--alias", "images"];
    const server = await startServer(named);
    try {
      const findings = await streamBeside(server, job, flags["--stream-tokens"] ?? 400);
      const method =
        "The gaps are those between two pieces of one text stream (SmolLM2-135M, wasm engine), alone and while images of " +
        `${job.size} are made in ${job.steps} steps by ${flags["--model"] ?? "the tiny model of the tests"}, at nice 10. Load of the ` +
        `machine by other programs at the beginning (load average of a minute): ${load}.`;
      const body = findingsTable("images", findings);
      report({ name: "images", title: "Images", method, body }, flags["--save"] ?? false);
    } finally {
      await server.stop();
    }
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function streamBeside({ url }: RunningServer, job: Job, tokens: number): Promise<readonly Finding[]> {
  await gapsOf(url, 50);
  const alone = percentiles(await gapsOf(url, tokens));
  let isStreaming = true;
  let images = 0;
  const generation = (async () => {
    while (isStreaming) {
      await generateImages(url, job);
      images++;
    }
  })();
  await sleep(500);
  const beside = percentiles(await gapsOf(url, tokens));
  isStreaming = false;
  await generation;
  return [
    told("gaps of a text stream alone: p50, p99", `${alone.p50.toFixed(1)}, ${alone.p99.toFixed(1)} ms`),
    told(
      "gaps beside a diffusion job: p50, p99",
      `${beside.p50.toFixed(1)}, ${beside.p99.toFixed(1)} ms (${images} images)`,
    ),
    atMost("p99 gap beside a diffusion job over alone", beside.p99 / alone.p99, 2),
  ];
}

async function generateImages(url: string, { size, steps }: Job): Promise<void> {
  const reply = await fetch(`${url}/v1/images/generations`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model: "images", prompt: "a red cat", size, steps, response_format: "b64_json" }),
  });
  const text = await reply.text();
  if (!reply.ok) throw new Error(text);
}
