// Client matrix: the requests that every client test makes, and the server of these tests: the real command with the
// real default model. Tool arguments have a few words each, so that a small model completes its calls within a few
// tokens.
import assert from "node:assert/strict";
import { after, before } from "node:test";
import { realModel } from "../../fixtures/models/models.ts";
import { type RunningServer, startServer } from "../../fixtures/serve.ts";

export const question = "Tell me about the sea in a few sentences.";
export const toolQuestion = "How is the weather in Rome and in Paris?";
export const maxTokens = 96;

/** PNG image of a red dot, in base64. */
export const image = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg==";

export const weather = {
  name: "get_weather",
  description: "Tells the weather of a city.",
  parameters: {
    type: "object",
    properties: {
      city: { type: "string", enum: ["Rome", "Paris"] },
      unit: { type: "string", enum: ["celsius", "fahrenheit"] },
    },
    required: ["city", "unit"],
    additionalProperties: false,
  },
} as const;

export const time = {
  name: "get_time",
  description: "Tells the time of a city.",
  parameters: {
    type: "object",
    properties: { city: { type: "string", enum: ["Rome", "Paris"] } },
    required: ["city"],
    additionalProperties: false,
  },
} as const;

/** JSON schema of the structured output requests. */
export const answerSchema = {
  type: "object",
  properties: {
    sea: { type: "string", enum: ["calm", "rough"] },
    depth: { type: "integer", minimum: 1, maximum: 9 },
  },
  required: ["sea", "depth"],
  additionalProperties: false,
} as const;

export interface MatrixServer {
  readonly url: string;
  /** Returns the number of sequences that currently have a slot. */
  running(): Promise<number>;
}

/** Returns the server of a test file, which starts before the first test and stops after the last. */
export function matrixServer(): MatrixServer {
  const holder: { server?: RunningServer } = {};
  before(async () => {
    const { path, isReal } = await realModel();
    assert.ok(isReal, "these clients are to be answered by the default model, which cannot be fetched here");
    holder.server = await startServer(["-m", path, "--temperature", "0", "--max-model-len", "1024", "--max-seqs", "4"]);
  });
  after(async () => {
    await holder.server?.stop();
  });
  const url = () => {
    assert.ok(holder.server, "the server has not been started");
    return holder.server.url;
  };
  return {
    get url() {
      return url();
    },
    running: async () => {
      const text = await (await fetch(`${url()}/metrics`)).text();
      return Number(/^service_sequences_running (\d+)/m.exec(text)?.[1]);
    },
  };
}

/** Waits until no sequence runs, which shows that aborted requests have stopped. */
export async function becomesIdle(server: MatrixServer, limitMs = 3000): Promise<void> {
  const limit = Date.now() + limitMs;
  while ((await server.running()) > 0) {
    assert.ok(Date.now() < limit, `a sequence still runs ${limitMs} ms after its client left`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

/** Asserts that arguments match the schema of `weather`. */
export function assertWeather(args: unknown): void {
  assert.ok(typeof args === "object" && args !== null);
  const { city, unit, ...rest } = args as Record<string, unknown>;
  assert.ok(["Rome", "Paris"].includes(city as string), `city is ${city}`);
  assert.ok(["celsius", "fahrenheit"].includes(unit as string), `unit is ${unit}`);
  assert.deepEqual(rest, {});
}

/** Asserts that arguments match the schema of the named tool. */
export function assertCall(name: string, args: unknown): void {
  if (name === weather.name) {
    assertWeather(args);
    return;
  }
  assert.equal(name, time.name);
  assert.ok(["Rome", "Paris"].includes((args as { city: string }).city));
}

export function assertStructured(value: unknown): void {
  const { sea, depth, ...rest } = value as Record<string, unknown>;
  assert.ok(sea === "calm" || sea === "rough", `sea is ${sea}`);
  assert.ok(Number.isInteger(depth) && (depth as number) >= 1 && (depth as number) <= 9, `depth is ${depth}`);
  assert.deepEqual(rest, {});
}
