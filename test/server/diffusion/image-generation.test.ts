// Image generation (POST /v1/images/generations) with the real command and tiny models: OpenAI's client, files, streams,
// limits, cancellation, a crash.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, describe, it } from "node:test";
import { decode } from "fast-png";
import OpenAI from "openai";
import { ddimConfig, writeTinyPipeline } from "../../fixtures/diffusion/tiny-pipelines.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

const root = mkdtempSync(join(tmpdir(), "troupe-images-"));
const folder = writeTinyPipeline(join(root, "sd"), { kind: "sd", config: ddimConfig });
const turbo = writeTinyPipeline(join(root, "turbo"), {
  kind: "xl",
  scaling: 0.13025,
  config: { ...ddimConfig, _class_name: "EulerAncestralDiscreteScheduler", timestep_spacing: "trailing" },
});
let server: RunningServer;

interface Answer {
  readonly status: number;
  readonly body: {
    readonly data: readonly { readonly url?: string; readonly b64_json?: string; readonly seed: number }[];
    readonly size: string;
    readonly usage: { readonly input_tokens: number; readonly total_tokens: number };
    readonly error: { readonly code: string; readonly message: string; readonly param: string | null };
  };
}

async function ask(body: object, signal: AbortSignal | null = null): Promise<Answer> {
  const response = await fetch(`${server.url}/v1/images/generations`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });
  return { status: response.status, body: (await response.json()) as Answer["body"] };
}

function pixelsOf(b64: string | undefined) {
  return decode(Buffer.from(b64 ?? "", "base64"));
}

/** Job that takes some seconds: many steps of a large image. */
const long = { prompt: "a red cat", size: "1024x1024", steps: 100, guidance_scale: 1 };

before(async () => {
  const flags = ["--diffusion-max-queue", "1", "--diffusion-threads", "1", "--max-loaded-models", "2"];
  server = await startServer(["-m", folder, "--alias", "sd", "-m", turbo, "--alias", "turbo", ...flags]);
});
after(async () => {
  await server.stop();
  rmSync(root, { recursive: true });
});

describe("images", () => {
  it("are made for OpenAI's client, and kept as files of the server", async () => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
    const made = await client.images.generate({ model: "sd", prompt: "a red cat", size: "256x256", n: 2 });
    assert.equal(made.data?.length, 2);
    const url = made.data?.[0]?.url ?? "";
    const file = await fetch(url);
    assert.equal(file.headers.get("content-type"), "image/png");
    const { width, height, channels } = decode(new Uint8Array(await file.arrayBuffer()));
    assert.deepEqual([width, height, channels], [256, 256, 3]);
    const id = /file-[0-9a-f]+/.exec(url)?.[0] ?? "";
    assert.equal((await client.files.retrieve(id)).purpose, "agent_output");
  });

  it("are the same for a seed, with both spellings of the response formats", async () => {
    const asked = { model: "sd", prompt: "a red cat", seed: 3, steps: 4 };
    const one = await ask({ ...asked, response_format: "b64_json", n: 2 });
    const other = await ask({ ...asked, response_format: "B64Json", seed: 4 });
    const url = await ask({ ...asked, response_format: "Url" });
    assert.equal(one.body.size, "64x64");
    assert.deepEqual(
      one.body.data.map(({ seed }) => seed),
      [3, 4],
    );
    assert.equal(one.body.data[1]?.b64_json, other.body.data[0]?.b64_json);
    assert.notEqual(one.body.data[0]?.b64_json, other.body.data[0]?.b64_json);
    assert.match(url.body.data[0]?.url ?? "", /^http:\/\/127\.0\.0\.1:\d+\/v1\/files\/file-/);
    const { data, width } = pixelsOf(one.body.data[0]?.b64_json);
    assert.equal(width, 64);
    assert.ok(new Set(data).size > 20, "the image has many shades");
    assert.equal(one.body.usage.total_tokens, 2 * other.body.usage.total_tokens);
  });

  it("take a few steps without guidance by default on a distilled model of the SDXL class", async () => {
    const models = (await (await fetch(`${server.url}/v1/models`)).json()) as {
      data: { id: string; diffusion?: { steps?: number; guidance_scale?: number; native_size?: number } }[];
    };
    const { steps, guidance_scale, native_size } = models.data.find(({ id }) => id === "turbo")?.diffusion ?? {};
    assert.deepEqual([steps, guidance_scale, native_size], [4, 1, 64]);
    const { status, body } = await ask({ model: "turbo", prompt: "a red cat", response_format: "b64_json" });
    assert.equal(status, 200, JSON.stringify(body));
    assert.equal(pixelsOf(body.data[0]?.b64_json).height, 64);
  });

  it("are streamed with their steps and unfinished images", async () => {
    const client = new OpenAI({ baseURL: `${server.url}/v1`, apiKey: "none", maxRetries: 0 });
    const stream = await client.images.generate({
      model: "sd",
      prompt: "a red cat",
      stream: true,
      partial_images: 2,
      response_format: "b64_json",
      ...{ steps: 6, seed: 1 },
    });
    const types: string[] = [];
    let last = "";
    for await (const event of stream) {
      types.push(event.type.replace("image_generation.", ""));
      if ("b64_json" in event) {
        last = event.b64_json;
        assert.equal(pixelsOf(last).width, 64);
      }
    }
    const step = "in_progress";
    const partial = "partial_image";
    assert.deepEqual(types, [step, step, partial, step, step, partial, step, step, "completed"]);
    const whole = await ask({ model: "sd", prompt: "a red cat", steps: 6, seed: 1, response_format: "b64_json" });
    assert.equal(last, whole.body.data[0]?.b64_json);
  });

  it("are rejected with the name of the field that the model or the server does not support", async () => {
    const cases: [body: object, status: number, param: string, pattern: RegExp][] = [
      [{ size: "100x64" }, 422, "size", /multiples of 64/],
      [{ size: "2048x2048" }, 422, "size", /at most 1048576 pixels/],
      [{ size: "big" }, 422, "size", /WIDTHxHEIGHT/],
      [{ size: "64x64", width: 64 }, 422, "size", /got both/],
      [{ steps: 101 }, 422, "steps", /at most 100 steps/],
      [{ n: 11 }, 422, "n", /10/],
      [{ background: "transparent" }, 400, "background", /no transparency/],
      [{ output_format: "webp" }, 422, "output_format", /png/],
      [{ partial_images: 1 }, 422, "partial_images", /stream/],
      [{ prompt: "cat ".repeat(100) }, 422, "prompt", /at most 75 tokens.*got 100/],
    ];
    for (const [change, , param, pattern] of cases) {
      const { status, body } = await ask({ model: "sd", prompt: "a cat", ...change });
      assert.ok(status >= 400 && status < 500, `${JSON.stringify(change)}: ${status}`);
      assert.match(body.error.message, pattern, JSON.stringify(change));
      assert.equal(body.error.param, param, JSON.stringify(change));
    }
    const cut = await ask({ model: "sd", prompt: "cat ".repeat(100), truncate_sequence: true, steps: 1 });
    assert.equal(cut.body.usage.input_tokens, 77);
    const chat = await fetch(`${server.url}/v1/chat/completions`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ model: "sd", messages: [{ role: "user", content: "x" }] }),
    });
    assert.match(await chat.text(), /"sd\\" is a diffusion model.*POST \/v1\/images\/generations/);
  });

  it("wait in a bounded queue; a job whose client has disconnected ends between two steps", async () => {
    const gone = new AbortController();
    const running = ask({ model: "sd", ...long, n: 10 }, gone.signal);
    await new Promise((resolve) => setTimeout(resolve, 300));
    const waiting = ask({ model: "sd", prompt: "a cat", steps: 1 });
    await new Promise((resolve) => setTimeout(resolve, 100));
    const refused = await ask({ model: "sd", prompt: "a cat", steps: 1 });
    assert.equal(refused.status, 429);
    assert.match(refused.body.error.message, /1 requests for images \(max_queue of \[diffusion\]\) already wait/);
    gone.abort();
    await assert.rejects(running);
    assert.equal((await waiting).status, 200);
  });

  it("get a retryable error when the model's process ends, which is restarted", async () => {
    const running = ask({ model: "sd", ...long, n: 10 });
    await new Promise((resolve) => setTimeout(resolve, 500));
    const [, pid] = /model=sd .*enginePid=(\d+)/.exec(server.output()) ?? [];
    process.kill(Number(pid), "SIGKILL");
    const { status, body } = await running;
    assert.equal(status, 503, JSON.stringify(body));
    assert.equal(body.error.code, "peer_gone");
    for (let attempt = 0; ; attempt++) {
      const again = await ask({ model: "sd", prompt: "a cat", steps: 1 });
      if (again.status === 200) break;
      assert.ok(attempt < 50, JSON.stringify(again.body));
      await new Promise((resolve) => setTimeout(resolve, 200));
    }
  });

  it("are unloaded and loaded like any model", async () => {
    const manage = async (path: string) => {
      const response = await fetch(`${server.url}/v1/models/${path}`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify({ model_id: "sd" }),
      });
      return ((await response.json()) as { status: string }).status;
    };
    assert.equal(await manage("unload"), "unloaded");
    assert.equal((await ask({ model: "sd", prompt: "a cat", steps: 1 })).status, 200);
    assert.equal(await manage("status"), "loaded");
    assert.equal(await manage("reload"), "loaded");
  });
});
