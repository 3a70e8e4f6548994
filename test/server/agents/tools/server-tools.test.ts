// biome-ignore-all lint/suspicious/noExplicitAny: the bodies of three protocols are read field by field
// Server tools in requests of three protocols: which requests offer the tools to the model, and what the clients see. The tools
// are fakes; the agent loop, the server and the official clients are real.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI from "openai";
import type { ServerTool, ToolSource } from "../../../../actors/api/agent/server-tools.ts";
import { checked, eventsOf, post, weather } from "../clients.ts";
import { type AgentRig, startAgents, type Turn } from "../rig.ts";

function serverTool(name: string, server: string | null = null): ServerTool {
  return {
    spec: { name, description: `Does ${name}`, parameters: { type: "object" }, strict: false },
    about: { source: "mcp", kind: "external", label: name },
    server,
    async run({ arguments: args, onProgress }) {
      onProgress({ progress: 1, total: 2, message: "half" });
      // A tool may still report progress after it has returned.
      setImmediate(() => onProgress({ progress: 2, total: 2, message: "late" }));
      if (args.includes("fail")) throw new Error("the shelf is empty");
      return { status: "success", content: `${name} got ${args}`, images: [] };
    },
  };
}

const tools = [serverTool("lookup", "library"), serverTool("borrow", "library"), serverTool("clock")];
const source: ToolSource = { tools: () => tools };
const calls = (name: string, args: object = { q: "x" }): Turn => ({ calls: [[name, args]] });
const hi = { role: "user", content: "hi" };

const forms = [
  { name: "chat", path: "/v1/chat/completions", body: (more: object) => ({ messages: [hi], ...more }) },
  { name: "responses", path: "/v1/responses", body: (more: object) => ({ input: "hi", ...more }) },
  { name: "messages", path: "/v1/messages", body: (more: object) => ({ messages: [hi], max_tokens: 9, ...more }) },
] as const;

let rig: AgentRig;
before(async () => {
  rig = await startAgents({ sources: [source] });
});
after(async () => {
  await rig.stop();
});

/** Returns the names of the tools that were offered to the model in the last request. */
const offered = (of = rig): readonly string[] =>
  of.inference.lastRun.request.tools?.specs.map(({ name }) => name) ?? [];

async function ask(path: string, body: object, of = rig): Promise<Record<string, any>> {
  return await checked(await post(of.url + path, body));
}

async function refusal(
  path: string,
  body: object,
  of = rig,
): Promise<{ status: number; code: string; message: string }> {
  const response = await post(of.url + path, body);
  const { error } = (await response.json()) as any;
  return { status: response.status, code: error.code ?? error.type, message: error.message };
}

describe("the list of the tools", () => {
  it("has those of enabled features and those of MCP servers, with the labels that requests name", async () => {
    const list = (await (await fetch(`${rig.url}/v1/agent/tools`)).json()) as any;
    const of = (name: string) => list.data.find((tool: any) => tool.name === name);
    assert.deepEqual(of("lookup"), {
      object: "agent.tool",
      name: "lookup",
      description: "Does lookup",
      group: null,
      server_label: "library",
    });
    assert.equal(of("clock").server_label, null);
    assert.equal(of("service_execute_python").group, "code_execution");
    assert.equal(of("service_search_the_web"), undefined);
  });
});

for (const { name, path, body } of forms) {
  describe(`server tools in a plain request over ${name}`, () => {
    it("are offered and run", async () => {
      rig.script(calls("lookup"), "found");
      const answer = await ask(path, body({}));
      assert.deepEqual(offered(), ["lookup", "borrow", "clock"]);
      assert.match(JSON.stringify(answer), /lookup got/);
      assert.equal(rig.seen().at(-1)?.at(-1)?.content, 'lookup got {"q":"x"}');
    });

    it("cause no extension event in a stream", async () => {
      rig.script(calls("lookup"), "found");
      const response = await post(rig.url + path, body({ stream: true }));
      const names: string[] = [];
      for await (const { name: event, data } of eventsOf(response)) {
        names.push(event);
        if (name === "chat") assert.equal(data.object, "chat.completion.chunk");
        else assert.equal(data.type, event);
      }
      assert.deepEqual(
        names.filter((event) => event.startsWith("agentic") || event === "file_produced"),
        [],
      );
      assert.equal(rig.seen().length, 2);
    });

    it("give way to a function of the client that has the same name", async () => {
      rig.script(calls("lookup"));
      const { name: _, ...rest } = weather;
      const lookup =
        name === "chat"
          ? { type: "function", function: { name: "lookup", ...rest } }
          : name === "responses"
            ? { type: "function", name: "lookup", ...rest }
            : { name: "lookup", input_schema: rest.parameters };
      const answer = await ask(path, body({ tools: [lookup] }));
      assert.deepEqual(offered(), ["lookup", "borrow", "clock"]);
      assert.equal(rig.seen().length, 1, "the client runs the call");
      assert.match(JSON.stringify(answer), /tool_calls|function_call|tool_use/);
    });

    it("are not offered with a grammar, or if no tool may be called", async () => {
      rig.script();
      const none = name === "messages" ? { type: "none" } : "none";
      for (const more of [{ grammar: { type: "regex", value: "a" } }, { tool_choice: none }]) {
        await ask(path, body(name === "messages" && "grammar" in more ? { guided_regex: "a" } : more));
        assert.deepEqual(offered(), [], JSON.stringify(more));
      }
    });

    it("can be the tool that must be called", async () => {
      rig.script(calls("clock", {}), "noon");
      const choice =
        name === "chat"
          ? { type: "function", function: { name: "clock" } }
          : { type: name === "responses" ? "function" : "tool", name: "clock" };
      await ask(path, body({ tool_choice: choice }));
      assert.deepEqual(offered(), ["clock"]);
      const wrong = await refusal(
        path,
        body({ tool_choice: JSON.parse(JSON.stringify(choice).replace("clock", "x")) }),
      );
      assert.deepEqual([wrong.status, wrong.message.includes("lookup")], [400, true], wrong.message);
    });

    it("are also offered by a long request, which a text worker reads", async () => {
      rig.script(calls("lookup"), "found");
      const long = { role: "user", content: "x".repeat(100_000) };
      await ask(path, body(name === "responses" ? { input: [long] } : { messages: [long] }));
      assert.equal(rig.seen().at(-1)?.at(-1)?.content, 'lookup got {"q":"x"}');
    });
  });
}

describe("server tools", () => {
  it("are not offered by plain requests for several choices, nor in continuing a message", async () => {
    rig.script();
    await ask("/v1/chat/completions", { messages: [hi], n: 2 });
    assert.deepEqual(offered(), []);
    await ask("/v1/chat/completions", { messages: [hi, { role: "assistant", content: "Well" }] });
    assert.deepEqual(offered(), []);
  });

  it("leave no session of a plain request without calls", async () => {
    const statuses: number[] = [];
    for (const turns of [["hi"], [calls("lookup"), "found"]]) {
      rig.script(...turns);
      const { session_id: id } = await ask("/v1/chat/completions", { messages: [hi] });
      statuses.push((await fetch(`${rig.url}/v1/sessions/${id}`)).status);
    }
    assert.deepEqual(statuses, [404, 200]);
  });

  it("are offered by plain requests only if no call needs an approval", async () => {
    for (const permission of ["ask", "deny"] as const) {
      const asking = await startAgents({ sources: [source], settings: { permission } });
      try {
        await ask("/v1/chat/completions", { messages: [hi] }, asking);
        assert.deepEqual(offered(asking), []);
      } finally {
        await asking.stop();
      }
    }
  });

  it("are the first ones if there are too many for a request that names no server", async () => {
    const many = { tools: () => Array.from({ length: 250 }, (_, i) => serverTool(`t${i}`)) };
    const full = await startAgents({ sources: [many] });
    try {
      const functions = Array.from({ length: 7 }, (_, i) => ({ type: "function", function: { name: `f${i}` } }));
      await ask("/v1/chat/completions", { messages: [hi], tools: functions }, full);
      assert.equal(offered(full).length, 256);
      assert.ok(offered(full).includes("t0") && !offered(full).includes("t249"));
    } finally {
      await full.stop();
    }
  });
});

describe("MCP servers that a request names", () => {
  let named: AgentRig;
  before(async () => {
    named = await startAgents({ sources: [source], settings: { registersServerTools: false } });
  });
  after(async () => {
    await named.stop();
  });

  it("are the only servers whose tools it offers, if not all are registered; tools without a server are always offered", async () => {
    const bodies: readonly [path: string, body: object][] = [
      ["/v1/chat/completions", { messages: [hi], tools: [{ type: "mcp", server_label: "library" }] }],
      ["/v1/responses", { input: "hi", tools: [{ type: "mcp", server_label: "library" }] }],
      ["/v1/messages", { messages: [hi], max_tokens: 9, tools: [{ type: "mcp_toolset", mcp_server_name: "library" }] }],
      ["/v1/messages", { messages: [hi], max_tokens: 9, mcp_servers: [{ type: "url", name: "library" }] }],
    ];
    for (const [path, body] of bodies) {
      named.script(calls("lookup"), "found");
      await ask(path, body, named);
      assert.deepEqual(offered(named), ["lookup", "borrow", "clock"]);
      named.script();
      await ask(path, { ...body, tools: undefined, mcp_servers: undefined }, named);
      assert.deepEqual(offered(named), ["clock"]);
    }
  });

  it("offer only those of their tools that the request allows", async () => {
    const only = { type: "mcp", server_label: "library", allowed_tools: ["borrow"] };
    await ask("/v1/responses", { input: "hi", tools: [only] }, named);
    assert.deepEqual(offered(named), ["borrow", "clock"]);
    const set = { type: "mcp_toolset", mcp_server_name: "library", configs: { lookup: { enabled: false } } };
    await ask("/v1/messages", { messages: [hi], max_tokens: 9, tools: [set] }, named);
    assert.deepEqual(offered(named), ["borrow", "clock"]);
    const { message } = await refusal(
      "/v1/responses",
      { input: "hi", tools: [{ ...only, allowed_tools: ["steal"] }] },
      named,
    );
    assert.match(message, /library \(lookup, borrow\), got "steal"/);
  });

  it("are refused if they are unknown, or if the request says where they are", async () => {
    const unknown = { input: "hi", tools: [{ type: "mcp", server_label: "shop" }] };
    assert.match((await refusal("/v1/responses", unknown, named)).message, /\(library\), got "shop"/);
    const url = { type: "mcp", server_label: "library", server_url: "http://127.0.0.1:1/" };
    const { code, message } = await refusal("/v1/responses", { input: "hi", tools: [url] }, named);
    assert.equal(code, "unsupported");
    assert.match(message, /server_url.*operator/);
  });

  it("show a call as mcp_call with the label, which continues without a session", async () => {
    named.script(calls("lookup"), "found");
    const tools = [{ type: "mcp", server_label: "library" }];
    const first = await ask("/v1/responses", { input: "hi", tools, store: false }, named);
    const [item] = first.output;
    assert.deepEqual(
      [item.type, item.server_label, item.name, item.status],
      ["mcp_call", "library", "lookup", "completed"],
    );
    const before = named.seen().at(-1);
    await fetch(`${named.url}/v1/sessions/${first.session_id}`, { method: "DELETE" });
    named.script("again");
    const input = [hi, ...first.output, { role: "user", content: "more" }];
    await ask("/v1/responses", { input, tools, store: false }, named);
    assert.deepEqual(
      named
        .seen()[0]
        ?.slice(0, 3)
        .map(({ role, content }) => [role, content]),
      before?.map(({ role, content }) => [role, content]),
    );
  });

  it("report progress within one item, whose events the official client reads", async () => {
    const client = new OpenAI({ baseURL: `${named.url}/v1`, apiKey: "none", maxRetries: 0 });
    const body = { model: "tiny", input: "hi", tools: [{ type: "mcp" as const, server_label: "library" }] };
    const turns = [calls("lookup"), calls("lookup", { q: "fail" }), "found"];
    named.script(...turns);
    const whole = await client.responses.create(body);
    named.script(...turns);
    const stream = client.responses.stream(body);
    const types: string[] = [];
    for await (const { type } of stream) types.push(type.replace("response.mcp_call", "call"));
    const streamed = await stream.finalResponse();
    const items = ({ output }: { readonly output: readonly any[] }) =>
      output.map(({ type, status, name, output: result }) => [type, status, name, result]);
    assert.deepEqual(items(streamed), items(whole));
    assert.deepEqual(
      streamed.output.map(({ type, status }: any) => [type, status]),
      [
        ["mcp_call", "completed"],
        ["mcp_call", "failed"],
        ["message", "completed"],
      ],
    );
    const opening = ["call.in_progress", "call_arguments.delta", "call_arguments.done"];
    assert.deepEqual(
      types.filter((type) => type.startsWith("call")),
      [...opening, "call.completed", ...opening, "call.failed"],
    );
    named.script(calls("lookup"), "found");
    const progress: any[] = [];
    for await (const { name, data } of eventsOf(await post(`${named.url}/v1/responses`, { ...body, stream: true }))) {
      if (name === "agentic_tool_call_progress") progress.push(data);
    }
    assert.deepEqual(
      progress.map(({ phase, data }) => [phase, data.progress, data.total, data.message]),
      [
        ["calling", undefined, undefined, undefined],
        ["calling", 1, 2, "half"],
        ["complete", undefined, undefined, undefined],
      ],
    );
  });

  it("are blocks of MCP in messages, from which a request continues without a session", async () => {
    const client = new Anthropic({ baseURL: named.url, apiKey: "none", maxRetries: 0 });
    const tools = [{ type: "mcp_toolset" as const, mcp_server_name: "library" }];
    const body = { model: "tiny", max_tokens: 9, tools, messages: [{ role: "user" as const, content: "hi" }] };
    named.script(calls("lookup"), calls("lookup", { q: "fail" }), "found");
    const whole = await client.beta.messages.create(body);
    named.script(calls("lookup"), calls("lookup", { q: "fail" }), "found");
    const streamed = await client.beta.messages.stream(body).finalMessage();
    const blocks = ({ content }: { readonly content: readonly any[] }) =>
      content.map(({ type, name, server_name, input, is_error }) => [type, name, server_name, input, is_error]);
    assert.deepEqual(blocks(streamed), blocks(whole));
    assert.deepEqual(blocks(whole).slice(0, 4), [
      ["mcp_tool_use", "lookup", "library", { q: "x" }, undefined],
      ["mcp_tool_result", undefined, undefined, undefined, false],
      ["mcp_tool_use", "lookup", "library", { q: "fail" }, undefined],
      ["mcp_tool_result", undefined, undefined, undefined, true],
    ]);
    const before = named
      .seen()
      .at(-1)
      ?.map(({ role, content }) => [role, content]);
    named.script("again");
    const messages = [...body.messages, { role: "assistant", content: streamed.content }, hi];
    await client.beta.messages.create({ ...body, messages: messages as never });
    assert.deepEqual(
      named
        .seen()[0]
        ?.slice(0, 5)
        .map(({ role, content }) => [role, content]),
      before,
    );
  });

  it("ask for approvals if the request wants them, which needs a stream", async () => {
    const tools = [{ type: "mcp", server_label: "library", require_approval: "always" }];
    const { message } = await refusal("/v1/responses", { input: "hi", tools }, named);
    assert.match(message, /require_approval.*stream/);
    named.script(calls("lookup"), "found");
    const response = await post(`${named.url}/v1/responses`, { input: "hi", tools, stream: true });
    const names: string[] = [];
    for await (const { name, data } of eventsOf(response)) {
      names.push(name);
      if (name !== "agentic_tool_approval_required") continue;
      await post(`${named.url}/v1/agent/approvals/${String(data.approval_id)}`, { decision: "approve" });
    }
    assert.ok(names.includes("agentic_tool_approval_required"));
  });
});
