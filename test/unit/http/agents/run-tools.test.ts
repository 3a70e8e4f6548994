// Tools in requests: how three protocols translate to options of the agent loop.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import type { AgentOptions } from "../../../../actors/api/agent/agents.ts";
import { chatTranslator } from "../../../../http/chat/translator.ts";
import type { Exchange } from "../../../../http/exchange.ts";
import { messagesTranslator } from "../../../../http/messages/request/translator.ts";
import { itemTexts } from "../../../../http/responses/request/item-texts.ts";
import { responseTranslator } from "../../../../http/responses/request/translator.ts";
import { wholeRequest } from "../../../../http/responses/request/whole-request.ts";
import type { OfferedTools } from "../../../../http/shared/agent/run-tools.ts";
import type { ServerError } from "../../../../runtime/errors.ts";

const spec = (name: string) => ({ name, description: null, parameters: null, strict: false });
const offered: OfferedTools = {
  groups: ["code_execution", "shell", "web_search"],
  dispatches: false,
  permission: "auto",
  serverTools: [{ spec: spec("lookup"), server: "library" }],
  registersServerTools: true,
};
const hi = { role: "user", content: "hi" };

type Wanted = Pick<
  AgentOptions,
  "skills" | "maxUses" | "isPlain" | "serverTools" | "groups" | "permission" | "continuesAnswer"
>;

const ofChat = (body: object, tools: OfferedTools | null = offered): Wanted | null =>
  chatTranslator.translate({ messages: [hi], ...body }, tools, "refuse").agent;
const ofMessages = (body: object, tools: OfferedTools | null = offered): Wanted | null =>
  messagesTranslator.translate({ messages: [hi], max_tokens: 9, ...body }, tools, "refuse").agent;
const ofResponses = (body: object, tools: OfferedTools | null = offered) =>
  responseTranslator.translate({ input: "hi", ...body }, { responseId: "resp_1", offered: tools }, "refuse").agent;

/** Returns the error that the translation throws. */
function failure(translate: () => unknown): Pick<ServerError, "code" | "message" | "param"> {
  try {
    translate();
  } catch (error) {
    return error as ServerError;
  }
  return assert.fail("expected an error");
}

describe("a required call", () => {
  const tools = [{ type: "function", function: { name: "extract" } }];

  it("is limited to the client's functions if it has some: a server tool cannot replace them", () => {
    for (const tool_choice of ["required", { type: "function", function: { name: "extract" } }]) {
      assert.equal(ofChat({ tools, tool_choice }), null);
    }
    const input_schema = { type: "object" };
    assert.equal(ofMessages({ tools: [{ name: "extract", input_schema }], tool_choice: { type: "any" } }), null);
    assert.deepEqual(ofChat({ tools, tool_choice: "auto" })?.serverTools, ["lookup"]);
    assert.deepEqual(ofChat({ tool_choice: "required" })?.serverTools, ["lookup"]);
  });

  it("may be of a server's tool if the request names the server", () => {
    const named = [...tools, { type: "mcp", server_label: "library" }];
    assert.deepEqual(ofChat({ tools: named, tool_choice: "required" })?.serverTools, ["lookup"]);
  });
});

describe("a file in a message of a response request", () => {
  const input = [{ role: "user", content: [{ type: "input_file", filename: "a.txt", file_data: "aGk=" }] }];

  it("offers the server's tools, also if the request continues a stored response", () => {
    for (const previous_response_id of [null, `resp_${"0".repeat(32)}`]) {
      assert.deepEqual(ofResponses({ input, previous_response_id })?.tools?.groups, offered.groups);
      const refusal = failure(() => ofResponses({ input, previous_response_id }, null));
      assert.match(refusal.message, /a file in a message cannot be used/);
    }
  });

  it("offers them in later requests that continue the stored response", async () => {
    const continued = (body: object, items: typeof input | [typeof hi]) => {
      const previous_response_id = `resp_${"0".repeat(32)}`;
      const parameters = { responseId: "resp_1", offered };
      const translation = responseTranslator.translate(
        { input: "hi", previous_response_id, ...body },
        parameters,
        "refuse",
      );
      const responses = {
        history: async () => [itemTexts(items.map((item, i) => ({ id: `msg_${i}`, ...item })) as never)],
      };
      return wholeRequest({} as Exchange, { responses } as never, translation, { add() {} } as never);
    };
    const names = ({ asked }: Awaited<ReturnType<typeof continued>>) =>
      asked.tools?.specs.map(({ name }) => name) ?? [];
    const later = await continued({}, input);
    assert.deepEqual([later.agent?.groups, later.agent?.isPlain], [offered.groups, false]);
    assert.deepEqual(names(later), names(await continued({ input }, [hi])));
    const without = await continued({}, [hi]);
    assert.deepEqual([without.agent?.groups, names(without)], [[], ["lookup"]]);
    const off = await continued({ enable_search: false, enable_shell: false, enable_code_execution: false }, input);
    assert.deepEqual([off.agent?.groups, names(off)], [[], ["lookup"]]);
    const formatted = await continued({ grammar: { type: "regex", value: "a+" } }, input);
    assert.deepEqual([formatted.agent?.groups, names(formatted)], [[], []]);
    const own = await continued({ tools: [{ type: "function", name: "service_read_file" }] }, input);
    assert.deepEqual(names(own), ["service_read_file", "lookup"]);
  });
});

describe("an answer that ended at the limit of tool rounds", () => {
  it("is continued, whichever tools the server ran last", () => {
    const ran = (use: object, id: string, type: string) => [
      { ...use, id, input: {} },
      { type, tool_use_id: id, content: [{ type: "text", text: "x" }] },
    ];
    const code = ran({ type: "server_tool_use", name: "code_execution" }, "srvtoolu_0_a", "code_execution_tool_result");
    const lookup = ran(
      { type: "mcp_tool_use", name: "lookup", server_name: "library" },
      "mcptoolu_0_b",
      "mcp_tool_result",
    );
    for (const last of [code, lookup]) {
      const messages = [hi, { role: "assistant", content: code }, hi, { role: "assistant", content: last }];
      assert.equal(ofMessages({ messages, session_id: "s" })?.continuesAnswer, true);
    }
  });
});

describe("skills of a request", () => {
  const shell = (skill: object) => ({
    tools: [{ type: "shell", environment: { type: "container_auto", skills: [skill] } }],
  });
  const code = { tools: [{ type: "code_execution_20250825", name: "code_execution" }] };

  it("are named in the shell's environment, or in the container", () => {
    const reference = { type: "skill_reference", skill_id: "skill_1" };
    const versions = [
      [{}, null],
      [{ version: "latest" }, null],
      [{ version: 2 }, 2],
      [{ version: "3" }, 3],
    ] as const;
    for (const [more, version] of versions) {
      const expected = [{ id: "skill_1", version }];
      assert.deepEqual(ofChat(shell({ ...reference, ...more }))?.skills, expected);
      assert.deepEqual(ofResponses(shell({ ...reference, ...more }))?.skills, expected);
      const skills = [{ type: "custom", skill_id: "skill_1", ...more }];
      assert.deepEqual(ofMessages({ ...code, container: { skills } })?.skills, expected);
    }
  });

  it("are refused inside a request, from another vendor, and without the agent loop", () => {
    const inline = failure(() => ofChat(shell({ type: "inline", skill_id: "a" })));
    assert.match(inline.message, /upload it at POST \/v1\/skills/);
    const anthropic = { container: { skills: [{ type: "anthropic", skill_id: "pptx" }] } };
    assert.deepEqual(failure(() => ofMessages({ ...code, ...anthropic })).code, "unsupported");
    const skills = [{ type: "custom", skill_id: "a" }];
    assert.deepEqual(failure(() => ofMessages({ container: { skills } }, null)).code, "unsupported");
  });
});

describe("server tools of a request", () => {
  it("make a plain request a run, unless they are not registered", () => {
    for (const optionsOf of [ofChat, ofMessages]) {
      const { groups, serverTools, isPlain } = optionsOf({}) ?? assert.fail();
      assert.deepEqual([groups, serverTools, isPlain], [[], ["lookup"], true]);
      assert.equal(optionsOf({}, { ...offered, registersServerTools: false }), null);
      assert.equal(optionsOf({}, null), null);
    }
  });

  it("belong to every request that uses the agent loop, whatever the permission", () => {
    const asking = { ...offered, permission: "ask" } as const;
    const run = ofChat({ session_id: "s", stream: true }, asking);
    assert.deepEqual([run?.serverTools, run?.isPlain], [["lookup"], false]);
  });

  it("are named with filters, and with the approvals that they need", () => {
    const named = (more: object) => ({ stream: true, tools: [{ type: "mcp", server_label: "library", ...more }] });
    assert.deepEqual(ofChat(named({ allowed_tools: { tool_names: ["lookup"] } }))?.serverTools, ["lookup"]);
    assert.deepEqual(ofChat(named({ allowed_tools: [] }))?.serverTools, []);
    assert.equal(ofChat(named({ require_approval: "never" }))?.permission, null);
    const tool_names = ["lookup"];
    for (const require_approval of ["always", { always: { tool_names } }, { never: { tool_names } }]) {
      assert.equal(ofChat(named({ require_approval }))?.permission, "ask");
    }
    assert.equal(ofChat({ ...named({ require_approval: "always" }), agent_permission: "deny" })?.permission, "deny");
    const off = { tools: [{ type: "mcp_toolset", mcp_server_name: "library", default_config: { enabled: false } }] };
    assert.deepEqual(ofMessages(off)?.serverTools, []);
    const on = { configs: { lookup: { enabled: true } }, default_config: { enabled: false } };
    const toolset = { tools: [{ type: "mcp_toolset", mcp_server_name: "library", ...on }] };
    assert.deepEqual(ofMessages(toolset)?.serverTools, ["lookup"]);
  });

  it("are limited by max_uses", () => {
    const search = { type: "web_search_20250305", name: "web_search", max_uses: 3 };
    assert.deepEqual(ofMessages({ tools: [search] })?.maxUses, { service_search_the_web: 3 });
  });
});
