// Custom tools of an embedding program: rejected definitions, validation of arguments, what the model gets, and how calls end.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { z } from "zod";
import type { ServerToolResult, ToolProgress } from "../../../../actors/api/agent/server-tools.ts";
import { maxResultBytes } from "../../../../actors/api/agent/tools.ts";
import { createTroupe, type Tool, type ToolContext, type ToolResult, tool } from "../../../../cli/embed/main.ts";
import { customTools } from "../../../../cli/embed/tools/custom-tools.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";
import { changesOf, createRig, ran } from "../../actors/agent-loop/rig.ts";

const png = Buffer.from("\x89PNG\r\n\x1a\nrest", "latin1");
const nothing = { type: "object" } as const;
const weather = tool({
  name: "get_weather",
  description: "Returns the weather of a city.",
  schema: z.object({ city: z.string(), days: z.number().int().min(1).default(1) }),
  run: ({ city, days }) => `${city}: ${days} sunny days`,
});

/** Returns a tool without arguments. */
function returning(
  run: (args: unknown, context: ToolContext) => ToolResult | Promise<ToolResult>,
  timeoutMs?: number,
): Tool {
  return tool({ name: "give", description: "Gives", schema: nothing, timeoutMs, run });
}

const noAnswer = async () => ({ action: "decline" }) as const;

/** Calls a tool as the agent loop does. */
async function called(
  given: Tool,
  args: unknown = {},
  { signal = new AbortController().signal, onProgress = (_: ToolProgress) => {} } = {},
): Promise<ServerToolResult> {
  const [one] = customTools([given], recordingLog()).tools();
  const text = typeof args === "string" ? args : JSON.stringify(args);
  return await one!.run({ id: "1", arguments: text, session: "s1", client: "c", signal, onProgress, ask: noAnswer });
}

describe("the declaration of a tool", () => {
  it("has the input of the zod schema, or the JSON schema as it is", () => {
    const schema = { type: "object", properties: { n: { type: "integer" } } } as const;
    const counter = tool({ name: "count", description: "Counts", schema, run: () => 1 });
    const specs = customTools([weather, counter], recordingLog())
      .tools()
      .map(({ spec }) => spec);
    assert.deepEqual(specs[0], {
      name: "get_weather",
      description: "Returns the weather of a city.",
      parameters: {
        type: "object",
        properties: {
          city: { type: "string" },
          days: { type: "integer", minimum: 1, maximum: Number.MAX_SAFE_INTEGER, default: 1 },
        },
        required: ["city"],
      },
      strict: false,
    });
    assert.deepEqual(specs[1]?.parameters, schema);
  });

  it("is refused with its place if something in it cannot be used", async () => {
    const faults: readonly (readonly [change: object, complaint: RegExp])[] = [
      [{ name: "a b" }, /tools\[1\]\.name expects 1 to 64 letters, digits, "_" and "-"; got "a b"/],
      [{ name: "service_x" }, /tools\[1\]\.name expects a name that does not begin with "service_"/],
      [{ name: "get_weather" }, /tools expects tools of different names; got "get_weather" twice/],
      [{ description: undefined }, /tools\[1\]\.description expects a text; got undefined/],
      [{ run: "rm" }, /tools\[1\]\.run expects a function; got string/],
      [{ timeoutMs: 0 }, /tools\[1\]\.timeoutMs expects a number from 1/],
      [{ schema: undefined }, /tools\[1\]\.schema of the tool "other": expected an object, got undefined/],
      [{ schema: { type: "string" } }, /expected the schema of an object \(type "object"\), got type "string"/],
      [{ schema: { type: "object", properties: { a: { type: "strng" } } } }, /schema of the tool "other": .*type/],
      [{ schema: z.object({ at: z.date() }) }, /schema of the tool "other": Date cannot be represented/],
    ];
    for (const [change, complaint] of faults) {
      const other = { ...returning(() => 1), name: "other", ...change } as Tool;
      await assert.rejects(createTroupe({ tools: [weather, other] }), (error: Error & { code?: string }) => {
        assert.match(error.message, complaint);
        return error.code === "config_invalid";
      });
    }
    await assert.rejects(createTroupe({ tools: [null as unknown as Tool] }), /tools\[0\] expects a tool; got null/);
    await assert.rejects(createTroupe({ tools: 5 as unknown as Tool[] }), /tools expects an array; got 5/);
  });
});

describe("a call of a tool", () => {
  it("gets arguments that match the schema, with its defaults", async () => {
    assert.equal((await called(weather, { city: "Oslo" })).content, "Oslo: 1 sunny days");
  });

  it("does not run if the arguments do not match; the model gets the reason", async () => {
    const schema = { type: "object", properties: { n: { type: "integer" } }, required: ["n"] } as const;
    let runs = 0;
    const counter = tool({ name: "count", description: "Counts", schema, run: () => ++runs });
    const problems = [
      await called(weather, { city: 5 }),
      await called(weather, "{"),
      await called(counter, { n: "x" }),
      await called(counter, {}),
      await called(counter, "{"),
    ];
    assert.ok(problems.every(({ status }) => status === "error"));
    for (const [i, complaint] of [
      /expected string/,
      /not complete JSON/,
      /at \/n must be integer/,
      /n/,
      /not complete/,
    ].entries())
      assert.match(JSON.parse(problems[i]!.content).error, complaint);
    assert.equal(runs, 0);
  });

  it("has text, JSON or text with images as its result", async () => {
    assert.equal((await called(returning(() => "plain"))).content, "plain");
    assert.equal((await called(returning(async () => ({ a: [1, null] })))).content, '{"a":[1,null]}');
    assert.equal((await called(returning(() => 7))).content, "7");
    assert.deepEqual(await called(returning(() => ({ content: "a plot", images: [png] }))), {
      status: "success",
      content: "a plot",
      images: [png.toString("base64")],
    });
  });

  it("has a result of limited size", async () => {
    const { content } = await called(returning(() => "x".repeat(10 * maxResultBytes)));
    assert.ok(content.length < maxResultBytes + 100);
    assert.match(content, /\[\d+ bytes left out\]/);
    const many = await called(returning(() => ({ content: "", images: Array(17).fill(png) })));
    assert.match(many.content, /17 images .* expected at most 16/);
  });

  it("tells the model what went wrong, and logs it", async () => {
    const log = recordingLog();
    const wrong: readonly (readonly [run: () => unknown, complaint: RegExp])[] = [
      [() => Promise.reject(new Error("no such city")), /^no such city$/],
      [() => undefined, /returned undefined; expected a text/],
      [() => 1n, /BigInt/],
      [() => ({ content: "", images: [Buffer.from("GIF")] }), /not a PNG file/],
    ];
    for (const [run, complaint] of wrong) {
      const [one] = customTools([returning(run as () => ToolResult)], log).tools();
      const signal = new AbortController().signal;
      const result = await one!.run({
        id: "1",
        arguments: "{}",
        session: "s",
        client: "c",
        signal,
        onProgress() {},
        ask: noAnswer,
      });
      assert.equal(result.status, "error");
      assert.match(JSON.parse(result.content).error, complaint);
    }
    assert.deepEqual(
      log.lines.map(({ level, fields }) => [level, fields.tool]),
      wrong.map(() => ["warn", "give"]),
    );
  });

  it("ends after its time limit, and at once if it is cancelled, even if the tool goes on", async () => {
    const signals: AbortSignal[] = [];
    const endless = (_: unknown, { signal }: ToolContext) => {
      signals.push(signal);
      return new Promise<string>(() => {});
    };
    const late = await called(returning(endless, 20));
    assert.deepEqual([late.status, JSON.parse(late.content).error], ["timeout", "the tool took longer than 20 ms"]);
    const obeying = (_: unknown, { signal }: ToolContext) =>
      new Promise<string>((_resolve, reject) => signal.addEventListener("abort", () => reject(new Error("stopped"))));
    assert.equal((await called(returning(obeying, 20))).status, "timeout");
    const stop = new AbortController();
    const call = called(returning(endless), {}, { signal: stop.signal });
    await sleep(5);
    stop.abort();
    assert.equal((await call).status, "cancelled");
    assert.ok(signals.length === 2 && signals.every(({ aborted }) => aborted));
  });

  it("reports its progress until it ends", async () => {
    const seen: ToolProgress[] = [];
    const working = returning(async (_, { progress, session }) => {
      progress({ progress: 1, total: 2, message: `for ${session}` });
      progress({ progress: 2 });
      return "done";
    });
    await called(working, {}, { onProgress: (one) => seen.push(one) });
    assert.deepEqual(seen, [
      { progress: 1, total: 2, message: "for s1" },
      { progress: 2, total: null, message: null },
    ]);
  });
});

it("the agent loop runs the tools that a request offers, and the model gets the results", async () => {
  const source = customTools([weather], recordingLog());
  const turns = [
    [
      ["get_weather", { city: "Rome", days: 3 }],
      ["get_weather", {}],
    ] as const,
    "Sunny.",
  ];
  const rig = createRig(turns, {}, undefined, [source]);
  assert.deepEqual(
    rig.loop.serverTools.map(({ spec }) => spec.name),
    ["get_weather"],
  );
  const events = await ran(rig, { serverTools: ["get_weather"] });
  const records = events.flatMap((event) => (event.type === "tool_progress" && event.record ? [event.record] : []));
  assert.deepEqual(
    records
      .map(({ result_content }) => result_content)
      .sort()
      .map((content) => content.slice(0, 18)),
    ["Rome: 3 sunny days", '{"status":"error",'],
  );
  const [appended] = changesOf(rig, 1)!.splices;
  assert.equal(appended!.messages.find(({ role }) => role === "tool")?.content, "Rome: 3 sunny days");
});

it("the types of a tool follow its schema", () => {
  const schema = z.object({ city: z.string() });
  tool({ name: "a", description: "", schema, run: ({ city }) => city.toUpperCase() });
  // @ts-expect-error the schema has no field "town"
  tool({ name: "a", description: "", schema, run: ({ town }) => town });
  // @ts-expect-error city is a string
  tool({ name: "a", description: "", schema, run: ({ city }) => city * 2 });
  tool({ name: "a", description: "", schema: nothing, run: ({ city }) => (typeof city === "string" ? city : null) });
  // @ts-expect-error with a JSON schema, the types of the arguments are unknown
  tool({ name: "a", description: "", schema: nothing, run: ({ city }) => city.toUpperCase() });
  // @ts-expect-error the schema of the arguments must describe an object
  tool({ name: "a", description: "", schema: z.string(), run: () => "" });
  // @ts-expect-error undefined is not a valid result
  tool({ name: "a", description: "", schema, run: () => undefined });
  const tools: readonly Tool[] = [weather];
  assert.equal(tools.length, 1);
});
