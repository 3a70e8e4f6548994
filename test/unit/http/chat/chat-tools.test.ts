import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const inference = new FakeInference();
const app = createApp({ inference, log: recordingLog(), config: { accessLog: false } });

const send = (body: object) => request(app, "POST", "/v1/chat/completions", { body: { messages: "hi", ...body } });

/** Translates a request body. Returns its tools. */
async function toolsOf(body: object) {
  const reply = await send(body);
  assert.equal(reply.status, 200, reply.body);
  return inference.lastRun.request.tools;
}

const tool = (name: string, rest: object = {}) => ({ type: "function", function: { name, ...rest } });
const spec = (name: string) => ({ name, description: null, parameters: null, strict: false });
const tools = [tool("f"), tool("g"), tool("h")];

describe("chat tools", () => {
  it("are translated to specs with null for omitted fields", async () => {
    const parameters = { type: "object", properties: { x: { type: "integer" } }, $schema: "any" };
    const full = tool("get_a-1", { description: "gets", parameters, strict: true });
    assert.deepEqual(
      await toolsOf({ tools: [full, tool("f", { description: null, parameters: null, strict: null })] }),
      {
        specs: [{ name: "get_a-1", description: "gets", parameters, strict: true }, spec("f")],
        required: false,
        parallel: true,
      },
    );
  });

  const all = ["f", "g", "h"];
  const choices: readonly (readonly [string, unknown, readonly string[], boolean, parallel?: false])[] = [
    ["null", null, all, false],
    ["auto", "auto", all, false],
    ["required", "required", all, true],
    ["a function", { type: "function", function: { name: "g" } }, ["g"], true, false],
    ["a function, flat", { type: "function", name: "g" }, ["g"], true, false],
    [
      "allowed tools",
      { type: "allowed_tools", allowed_tools: { mode: "auto", tools: [tool("h"), tool("f")] } },
      ["f", "h"],
      false,
    ],
    [
      "required of allowed tools",
      { type: "allowed_tools", allowed_tools: { mode: "required", tools: [tool("h")] } },
      ["h"],
      true,
    ],
    [
      "allowed tools, flat",
      { type: "allowed_tools", mode: "required", tools: [{ type: "function", name: "f" }] },
      ["f"],
      true,
    ],
  ];
  for (const [what, tool_choice, names, required, parallel = true] of choices) {
    it(`are chosen by ${what}`, async () => {
      assert.deepEqual(await toolsOf({ tools, tool_choice }), { specs: names.map(spec), required, parallel });
    });
  }

  it("are none if none may be called", async () => {
    assert.equal(await toolsOf({ tools, tool_choice: "none" }), null);
    assert.equal(await toolsOf({ tools: [], tool_choice: "auto", parallel_tool_calls: false }), null);
    const none = { type: "allowed_tools", allowed_tools: { mode: "auto", tools: [] } };
    assert.equal(await toolsOf({ tools, tool_choice: none }), null);
  });

  it("are called one at a time on request", async () => {
    assert.equal((await toolsOf({ tools, parallel_tool_calls: false }))?.parallel, false);
  });

  it("combine with a response format, and with a grammar if none may be called", async () => {
    assert.ok(await toolsOf({ tools, response_format: { type: "json_object" } }));
    assert.ok(await toolsOf({ tools, ignore_eos: true }));
    assert.equal(await toolsOf({ tools, tool_choice: "none", grammar: { type: "regex", value: "a" } }), null);
  });

  const deep = (levels: number): object => (levels === 0 ? {} : { properties: deep(levels - 1) });
  const wide = { enum: Array.from({ length: 10_000 }, (_, i) => i) };
  const refused: readonly (readonly [string, object, string, RegExp])[] = [
    ["a name with a dot", { tools: [tool("f"), tool("a.b")] }, "tools[1].function.name", /letters, digits/],
    ["a name too long", { tools: [tool("f".repeat(65))] }, "tools[0].function.name", /1 to 64/],
    ["no function", { tools: [{ type: "function", name: "f" }] }, "tools[0].function", /got nothing/],
    [
      "parameters that are no schema",
      { tools: [tool("f", { parameters: [] })] },
      "tools[0].function.parameters",
      /an object/,
    ],
    ["a schema too deep", { tools: [tool("f", { parameters: deep(65) })] }, "tools[0].function.parameters", /64 deep/],
    ["a schema too wide", { tools: [tool("f", { parameters: wide })] }, "tools[0].function.parameters", /10000 values/],
    ["too many tools", { tools: Array.from({ length: 257 }, (_, i) => tool(`f${i}`)) }, "tools", /at most 256/],
    ["an unknown field", { tools: [tool("f", { stritc: true })] }, "tools[0].function.stritc", /no such field/],
    ["a custom tool", { tools: [{ type: "custom", custom: { name: "x" } }] }, "tools[0]", /"custom" is not supported/],
    ["web search", { tools: [{ type: "web_search" }] }, "tools[0]", /"web_search" is not supported/],
    ["a tool of no known type", { tools: [{ type: "hammer" }] }, "tools[0].type", /"function".*got "hammer"/],
    ["one name twice", { tools: [tool("f"), tool("f")] }, "tools", /"f" twice/],
    ["a choice of nothing", { tool_choice: "required" }, "tool_choice", /got none/],
    ["a choice of an unknown tool", { tools, tool_choice: { type: "function", name: "x" } }, "tool_choice", /f, g, h/],
    ["a choice in no known word", { tools, tool_choice: "any" }, "tool_choice", /"required"/],
    [
      "a choice of no known type",
      { tools, tool_choice: { type: "x" } },
      "tool_choice.type",
      /"allowed_tools", got "x"/,
    ],
    ["a choice by no name", { tools, tool_choice: { type: "function" } }, "tool_choice", /one name/],
    [
      "a choice by two names",
      { tools, tool_choice: { type: "function", name: "f", function: { name: "f" } } },
      "tool_choice",
      /one name/,
    ],
    [
      "allowed tools without a mode",
      { tools, tool_choice: { type: "allowed_tools", tools: [] } },
      "tool_choice",
      /a mode/,
    ],
    [
      "a custom choice",
      { tools, tool_choice: { type: "custom", custom: { name: "f" } } },
      "tool_choice",
      /not supported/,
    ],
    ["a grammar", { tools, grammar: { type: "regex", value: "a" } }, "grammar", /tool_choice "none"/],
    ["an endless call", { tools, tool_choice: "required", ignore_eos: true }, "ignore_eos", /required call/],
    ["functions", { functions: [{ name: "f" }] }, "functions", /send tools/],
    ["a choice of functions", { function_call: { name: "f" } }, "function_call", /tool_choice/],
  ];
  for (const [what, body, param, message] of refused) {
    it(`are refused with ${what}`, async () => {
      const reply = await send(body);
      const { error } = JSON.parse(reply.body);
      assert.deepEqual([reply.status, error.param], [400, param], reply.body);
      assert.match(error.message, message);
    });
  }

  it("are refused as unsupported if the server would run them, and so is a choice of them", async () => {
    for (const type of ["web_search_2025_08_26", "apply_patch", "computer", "tool_search"]) {
      for (const body of [{ tools: [{ type }] }, { tools, tool_choice: { type } }]) {
        const { error } = JSON.parse((await send(body)).body);
        assert.equal(error.code, "unsupported", error.message);
        assert.match(error.message, new RegExp(`"${type}" is not supported`));
      }
    }
  });

  it("accept a schema of maximum depth and size", async () => {
    assert.ok(await toolsOf({ tools: [tool("f", { parameters: deep(64) })] }));
    assert.ok(await toolsOf({ tools: [tool("f", { parameters: { enum: wide.enum.slice(1) } })] }));
  });
});
