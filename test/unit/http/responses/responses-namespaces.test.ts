import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { done, finish, toolCall } from "../../../fixtures/fakes/fake-inference.ts";
import { errorOf, type Json, ResponsesRig } from "./responses-rig.ts";

const input = "hi";
const plain = { type: "function", name: "find" };

function space(name: string, functions: readonly object[], more: object = {}): object {
  return { type: "namespace", name, tools: functions, ...more };
}

async function refusal(tools: readonly object[], more: object = {}): Promise<readonly [number, string, string | null]> {
  return errorOf(await new ResponsesRig().send({ input, tools, ...more }));
}

describe("a namespace of tools", () => {
  it("distinguishes functions of one name, for the model and the client", async () => {
    const strict = { type: "function", function: { name: "find", description: "Finds", strict: true } };
    const tools = [plain, space("crm", [strict], { description: "Customers" }), space("empty", [])];
    const rig = new ResponsesRig(() => [
      toolCall("crm__find", ["{}"], 0),
      toolCall("find", ["{}"], 1),
      [finish("tool_calls"), done],
    ]);
    const { response } = await rig.stream({ input, tools });
    assert.deepEqual(
      rig.inference.lastRun.request.tools?.specs.map(({ name, description, strict: isStrict }) => [
        name,
        description,
        isStrict,
      ]),
      [
        ["find", null, false],
        ["crm__find", "Finds", true],
      ],
    );
    assert.deepEqual(
      response.output.map(({ namespace, name }: Json) => [namespace, name]),
      [
        ["crm", "find"],
        [undefined, "find"],
      ],
    );
    const rest = { description: null, parameters: null, strict: false };
    assert.deepEqual(response.tools, [
      { type: "function", name: "find", ...rest },
      {
        type: "namespace",
        name: "crm",
        description: "Customers",
        tools: [{ type: "function", name: "find", description: "Finds", parameters: null, strict: true }],
      },
      { type: "namespace", name: "empty", description: null, tools: [] },
    ]);
  });

  it("is stored with a call, so that a conversation can continue", async () => {
    const rig = new ResponsesRig(() => [toolCall("crm__find", ["{}"]), [finish("tool_calls"), done]]);
    const { id } = await rig.create({ input, tools: [space("crm", [plain])] });
    const result = { type: "function_call_output", call_id: "call_0", output: "x" };
    await rig.create({ previous_response_id: id, input: [result] });
    const { prompt } = rig.inference.lastRun.request;
    assert.deepEqual(prompt.kind === "chat" && prompt.messages[1]?.toolCalls, [
      { id: "call_0", name: "crm__find", arguments: "{}" },
    ]);
  });

  it("lets a request require one of its functions by the combined name", async () => {
    const rig = new ResponsesRig();
    const choice = { type: "function", name: "crm__find" };
    await rig.create({ input, tools: [plain, space("crm", [plain])], tool_choice: choice });
    const use = rig.inference.lastRun.request.tools;
    assert.deepEqual([use?.required, use?.parallel, use?.specs.map(({ name }) => name)], [true, false, ["crm__find"]]);
  });

  it("is refused with no, too many or equally named functions", async () => {
    const custom = { type: "custom", name: "find" };
    assert.deepEqual(await refusal([space("crm", [custom])]), [400, "unsupported", "tools[0].tools[0]"]);
    assert.deepEqual(await refusal([space("crm", [space("inner", [])])]), [
      400,
      "invalid_value",
      "tools[0].tools[0].type",
    ]);
    assert.deepEqual(await refusal([space("not a name", [plain])]), [400, "invalid_value", "tools[0].name"]);
    const twice = [space("a", [{ ...plain, name: "b__c" }]), space("a__b", [{ ...plain, name: "c" }])];
    assert.deepEqual(await refusal(twice), [400, "invalid_value", "tools"]);
    const many = (count: number) => Array.from({ length: count }, (_, i) => ({ ...plain, name: `f${i}` }));
    assert.deepEqual(await refusal([space("a", many(200)), space("b", many(57))]), [400, "invalid_value", "tools"]);
    const rig = new ResponsesRig();
    await rig.create({ input, tools: [space("a", many(200)), space("b", many(56))] });
    assert.equal(rig.inference.lastRun.request.tools?.specs.length, 256);
  });

  it("is refused in linear time with many functions", async () => {
    const spaces = Array.from({ length: 256 }, (_, i) =>
      space(
        `n${i}`,
        Array.from({ length: 250 }, (_, j) => ({ type: "function", name: `f${j}` })),
      ),
    );
    const startedAt = performance.now();
    assert.deepEqual(await refusal(spaces), [400, "invalid_value", "tools"]);
    assert.ok(performance.now() - startedAt < 1500);
  });
});
