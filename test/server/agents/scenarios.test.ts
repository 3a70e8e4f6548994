// biome-ignore-all lint/suspicious/noExplicitAny: the bodies of three protocols are read field by field
// Scenarios of the agent loop over HTTP: a scripted model, real tools in the sandbox, real stores, and the official clients.
import assert from "node:assert/strict";
import { createServer } from "node:http";
import { after, afterEach, before, describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import Anthropic from "@anthropic-ai/sdk";
import OpenAI, { toFile } from "openai";
import { failure } from "../../fixtures/fakes/fake-inference.ts";
import { type AgentRig, startAgents, type Turn } from "./rig.ts";

const python = "service_execute_python";
const shell = "service_shell";
const runs = (code: string): Turn => ({ calls: [[python, { code }]] });
const commands = (...list: string[]): Turn => ({ calls: [[shell, { commands: list }]] });
const weather = {
  name: "get_weather",
  description: "The weather",
  parameters: { type: "object", properties: { city: { type: "string" } } },
};

/** A request in one protocol, and what came back in a common form. */
interface Answer {
  readonly text: string;
  /** Names and results of the tools that the server ran. */
  readonly ran: readonly { readonly name: string; readonly result: string }[];
  readonly clientCalls: readonly { readonly name: string; readonly id: string }[];
  readonly session: string | undefined;
  readonly end: string;
  readonly events: readonly string[];
  readonly raw: unknown;
}

interface Ask {
  readonly messages: readonly object[];
  readonly more?: Record<string, unknown>;
  readonly clientTools?: boolean;
}

interface Protocol {
  readonly name: string;
  ask(ask: Ask): Promise<Answer>;
  stream(
    ask: Ask,
    onEvent?: (name: string, data: Record<string, unknown>) => void,
    signal?: AbortSignal,
  ): Promise<Answer>;
}

interface ServerEvent {
  readonly name: string;
  readonly data: Record<string, unknown>;
}

async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
  let rest = "";
  const decoder = new TextDecoder();
  for await (const chunk of response.body ?? []) {
    rest += decoder.decode(chunk, { stream: true });
    for (let end = rest.indexOf("\n\n"); end >= 0; end = rest.indexOf("\n\n")) {
      const block = rest.slice(0, end);
      rest = rest.slice(end + 2);
      const name = /^event: (.*)$/m.exec(block)?.[1] ?? "";
      const data = /^data: (.*)$/m.exec(block)?.[1];
      if (data !== undefined && data !== "[DONE]") yield { name, data: JSON.parse(data) as Record<string, unknown> };
    }
  }
}

let rig: AgentRig;
const post = (path: string, body: object, signal?: AbortSignal) =>
  fetch(`${rig.url}${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    ...(signal === undefined ? {} : { signal }),
  });

async function checked(response: Response): Promise<Record<string, any>> {
  const body = (await response.json()) as Record<string, any>;
  assert.equal(response.status, 200, JSON.stringify(body));
  return body;
}

const progressOf = (events: readonly ServerEvent[]) =>
  events
    .filter(({ name, data }) => name === "agentic_tool_call_progress" && data.phase === "complete")
    .map(({ data }) => ({ name: String(data.tool_name), result: JSON.stringify(data.data) }));

async function collected(
  response: Response,
  onEvent: (name: string, data: Record<string, unknown>) => void,
): Promise<ServerEvent[]> {
  assert.equal(response.status, 200, response.status === 200 ? "" : await response.text());
  const events: ServerEvent[] = [];
  for await (const event of eventsOf(response)) {
    events.push(event);
    onEvent(event.name, event.data);
  }
  return events;
}

const chat: Protocol = {
  name: "chat completions",
  async ask({ messages, more = {}, clientTools }) {
    const tools = clientTools ? [{ type: "function", function: weather }] : [];
    const body = await checked(
      await post("/v1/chat/completions", {
        messages,
        tools: [{ type: "code_interpreter" }, { type: "shell" }, ...tools],
        ...more,
      }),
    );
    const { message, finish_reason } = body.choices[0];
    return {
      text: message.content ?? "",
      ran: (body.agentic_tool_calls ?? []).map((call: any) => ({ name: call.name, result: call.result_content })),
      clientCalls: (message.tool_calls ?? []).map((call: any) => ({ name: call.function.name, id: call.id })),
      session: body.session_id,
      end: finish_reason,
      events: [],
      raw: body,
    };
  },
  async stream({ messages, more = {}, clientTools }, onEvent = () => {}, signal) {
    const tools = clientTools ? [{ type: "function", function: weather }] : [];
    const response = await post(
      "/v1/chat/completions",
      { messages, stream: true, tools: [{ type: "code_interpreter" }, { type: "shell" }, ...tools], ...more },
      signal,
    );
    const events = await collected(response, onEvent);
    const chunks = events.filter(({ name }) => name === "").map(({ data }) => data as any);
    return {
      text: chunks.map((chunk) => chunk.choices?.[0]?.delta.content ?? "").join(""),
      ran: progressOf(events),
      clientCalls: chunks.flatMap((chunk) =>
        (chunk.choices?.[0]?.delta.tool_calls ?? [])
          .filter((call: any) => call.id)
          .map((call: any) => ({ name: call.function.name, id: call.id })),
      ),
      session: chunks.at(-1)?.session_id,
      end:
        chunks.map((chunk) => chunk.choices?.[0]?.finish_reason).findLast((reason) => reason) ??
        chunks.at(-1)?.error?.code,
      events: events.map(({ name }) => name),
      raw: events,
    };
  },
};

function ofResponse(body: Record<string, any>): Omit<Answer, "events" | "raw"> {
  const resultOf = (item: any) => item.agentic?.result_content ?? "";
  return {
    text: body.output_text,
    ran: body.output
      .filter((item: any) => ["code_interpreter_call", "shell_call_output", "mcp_call"].includes(item.type))
      .map((item: any) => ({
        name: item.type === "code_interpreter_call" ? python : item.type === "mcp_call" ? item.name : shell,
        result: resultOf(item),
      })),
    clientCalls: body.output
      .filter((item: any) => item.type === "function_call")
      .map((item: any) => ({ name: item.name, id: item.call_id })),
    session: body.session_id,
    end:
      body.status === "completed"
        ? body.output.some((item: any) => item.type === "function_call")
          ? "tool_calls"
          : "stop"
        : (body.incomplete_details?.reason ?? body.error?.code ?? body.status),
  };
}

const inputOf = (messages: readonly object[]) =>
  (messages as any[]).flatMap((message) => {
    if (message.role === "tool")
      return [{ type: "function_call_output", call_id: message.tool_call_id, output: message.content }];
    const calls = (message.tool_calls ?? []).map((call: any) => ({
      type: "function_call",
      call_id: call.id,
      name: call.function.name,
      arguments: call.function.arguments,
    }));
    return [...(message.content ? [{ role: message.role, content: message.content }] : []), ...calls];
  });

const responses: Protocol = {
  name: "responses",
  async ask({ messages, more = {}, clientTools }) {
    const tools = clientTools ? [{ type: "function", ...weather }] : [];
    const body = await checked(
      await post("/v1/responses", {
        input: inputOf(messages),
        tools: [{ type: "code_interpreter", container: { type: "auto" } }, { type: "shell" }, ...tools],
        ...more,
      }),
    );
    return { ...ofResponse(body), events: [], raw: body };
  },
  async stream({ messages, more = {}, clientTools }, onEvent = () => {}, signal) {
    const tools = clientTools ? [{ type: "function", ...weather }] : [];
    const response = await post(
      "/v1/responses",
      {
        input: inputOf(messages),
        stream: true,
        tools: [{ type: "code_interpreter", container: { type: "auto" } }, { type: "shell" }, ...tools],
        ...more,
      },
      signal,
    );
    const events = await collected(response, onEvent);
    const last = events.at(-1)?.data.response as Record<string, any>;
    const numbers = events.map(({ data }) => data.sequence_number);
    assert.deepEqual(numbers, [...numbers.keys()], "events are numbered without gaps");
    return { ...ofResponse(last), ran: progressOf(events), events: events.map(({ name }) => name), raw: events };
  },
};

const blocksOf = (messages: readonly object[]) =>
  (messages as any[]).map((message) => {
    if (message.role === "tool")
      return {
        role: "user",
        content: [{ type: "tool_result", tool_use_id: message.tool_call_id, content: message.content }],
      };
    const calls = (message.tool_calls ?? []).map((call: any) => ({
      type: "tool_use",
      id: call.id,
      name: call.function.name,
      input: JSON.parse(call.function.arguments),
    }));
    return {
      role: message.role,
      content: [...(message.content ? [{ type: "text", text: message.content }] : []), ...calls],
    };
  });

function ofMessage(body: Record<string, any>): Omit<Answer, "events" | "raw"> {
  const reasons: Record<string, string> = {
    end_turn: "stop",
    tool_use: "tool_calls",
    pause_turn: "max_tool_calls",
    max_tokens: "length",
  };
  return {
    text: body.content
      .filter((block: any) => block.type === "text")
      .map((block: any) => block.text)
      .join(""),
    ran: (body.agentic_tool_calls ?? []).map((call: any) => ({ name: call.name, result: call.result_content })),
    clientCalls: body.content
      .filter((block: any) => block.type === "tool_use")
      .map((block: any) => ({ name: block.name, id: block.id })),
    session: body.session_id,
    end: reasons[body.stop_reason] ?? body.stop_reason,
  };
}

const messagesProtocol: Protocol = {
  name: "messages",
  async ask({ messages, more = {}, clientTools }) {
    const tools = clientTools ? [{ name: weather.name, input_schema: weather.parameters }] : [];
    const body = await checked(
      await post("/v1/messages", {
        messages: blocksOf(messages),
        max_tokens: 1000,
        tools: [{ type: "code_execution_20250825", name: "code_execution" }, ...tools],
        ...more,
      }),
    );
    return { ...ofMessage(body), events: [], raw: body };
  },
  async stream({ messages, more = {}, clientTools }, onEvent = () => {}, signal) {
    const tools = clientTools ? [{ name: weather.name, input_schema: weather.parameters }] : [];
    const response = await post(
      "/v1/messages",
      {
        messages: blocksOf(messages),
        stream: true,
        max_tokens: 1000,
        tools: [{ type: "code_execution_20250825", name: "code_execution" }, ...tools],
        ...more,
      },
      signal,
    );
    const events = await collected(response, onEvent);
    const blocks: any[] = [];
    for (const { data } of events as any[]) {
      if (data.type === "content_block_start") blocks[data.index] = { ...data.content_block };
      else if (data.type === "content_block_delta" && data.delta.type === "text_delta")
        blocks[data.index].text += data.delta.text;
    }
    const delta = events.find(({ name }) => name === "message_delta")?.data as any;
    const whole = { content: blocks, stop_reason: delta?.delta.stop_reason, session_id: delta?.session_id };
    return { ...ofMessage(whole), ran: progressOf(events), events: events.map(({ name }) => name), raw: events };
  },
};

const question = { role: "user", content: "What is 6 * 7?" };
const last = <T>(list: readonly T[]): T => list.at(-1)!;

before(async () => {
  rig = await startAgents();
});
after(async () => {
  await rig.stop();
});

for (const protocol of [chat, responses, messagesProtocol]) {
  describe(`an agent run over ${protocol.name}`, () => {
    it("runs code, feeds the result back and answers", async () => {
      rig.script(runs("6 * 7"), "It is 42.");
      const answer = await protocol.ask({ messages: [question] });
      assert.deepEqual([answer.text, answer.end], ["It is 42.", "stop"]);
      assert.equal(answer.ran[0]?.name, python);
      assert.match(answer.ran[0]?.result ?? "", /"result":"42"/);
      assert.match(last(rig.seen()).at(-1)?.content ?? "", /"result":"42"/);
      assert.match(answer.session ?? "", /^sess_/);
    });

    it("streams the progress of a tool between its texts", async () => {
      rig.script({ text: "Let me see. ", calls: [[python, { code: "print('hi')" }]] }, "Done.");
      const answer = await protocol.stream({ messages: [question] });
      assert.equal(answer.text, "Let me see. Done.");
      assert.deepEqual(answer.events.filter((name) => name === "agentic_tool_call_progress").length, 2);
      assert.match(answer.ran[0]?.result ?? "", /hi/);
      assert.equal(answer.end, "stop");
    });

    it("runs calls of one turn in parallel and gives their results in order", async () => {
      rig.script(
        {
          calls: [
            [shell, { commands: ["sleep 0.4; echo slow"] }],
            [shell, { commands: ["echo fast"] }],
            [python, { code: "'cell'" }],
          ],
        },
        "ok",
      );
      const startedAt = performance.now();
      const answer = await protocol.ask({ messages: [question] });
      assert.ok(performance.now() - startedAt < 1500);
      assert.deepEqual(
        last(rig.seen())
          .slice(-3)
          .map(({ content }) => /slow|fast|cell/.exec(content)?.[0]),
        ["slow", "fast", "cell"],
      );
      assert.equal(answer.end, "stop");
    });

    it("goes on for several rounds, and each sees the results of all before it", async () => {
      rig.script(runs("x = 1"), runs("x += 1\nx"), commands("echo three"), "three rounds");
      const answer = await protocol.ask({ messages: [question] });
      assert.equal(answer.ran.length, 3);
      assert.equal(rig.seen().length, 4);
      assert.deepEqual(
        last(rig.seen()).map(({ role }) => role),
        ["user", "assistant", "tool", "assistant", "tool", "assistant", "tool"],
      );
      assert.equal(answer.text, "three rounds");
    });

    it("hands a client's own call back in the middle, and continues with its result", async () => {
      rig.script({
        calls: [
          [python, { code: "y = 5" }],
          ["get_weather", { city: "Bonn" }],
        ],
      });
      const first = await protocol.ask({ messages: [question], clientTools: true });
      assert.equal(first.end, "tool_calls");
      assert.deepEqual(
        first.clientCalls.map(({ name }) => name),
        ["get_weather"],
      );
      assert.equal(first.ran.length, 1);
      rig.script(runs("y"), "Sunny, and y is 5.");
      const call = first.clientCalls[0]!;
      const assistant = {
        role: "assistant",
        content: "",
        tool_calls: [{ id: call.id, type: "function", function: { name: call.name, arguments: '{"city":"Bonn"}' } }],
      };
      const second = await protocol.ask({
        messages: [question, assistant, { role: "tool", tool_call_id: call.id, content: "sunny" }],
        clientTools: true,
        more: { session_id: first.session },
      });
      assert.match(second.ran[0]?.result ?? "", /"result":"5"/, "the variables are still there");
      const roles = rig.seen()[0]!.map(({ role }) => role);
      if (protocol !== responses)
        assert.deepEqual(roles, ["user", "assistant", "tool", "tool"], "the server's own call is in the prompt again");
    });

    it("ends as incomplete when the limit of rounds is reached", async () => {
      rig.script(runs("1"), runs("2"), runs("3"));
      const answer = await protocol.ask({ messages: [question], more: { max_tool_rounds: 2 } });
      assert.equal(answer.ran.length, 2);
      assert.equal(answer.end, protocol === chat ? "length" : "max_tool_calls");
    });

    it("gives the model the error of code, of arguments, and of a tool that does not exist", async () => {
      rig.script(runs("1 / 0"), { calls: [[python, { wrong: 1 }]] }, { calls: [[shell, "not json"]] }, "sorry");
      const answer = await protocol.ask({ messages: [question] });
      assert.match(answer.ran[0]?.result ?? "", /ZeroDivisionError/);
      assert.match(answer.ran[1]?.result ?? "", /invalid arguments/);
      assert.match(answer.ran[2]?.result ?? "", /JSON object/);
      assert.equal(answer.text, "sorry");
    });

    it("surfaces created files, and says which requested ones are missing", async () => {
      rig.script(
        {
          calls: [
            [
              python,
              { code: "open('table.csv', 'w').write('a,b')", outputs: [{ name: "table.csv" }, { name: "plot.png" }] },
            ],
          ],
        },
        "here",
      );
      const events: string[] = [];
      const answer = await protocol.stream(
        { messages: [question], more: { files: [{ name: "table.csv" }] } },
        (name, data) => {
          if (name === "file_produced") events.push(`${data.name} ${data.code ?? data.text}`);
        },
      );
      assert.deepEqual(events, ["table.csv a,b", "plot.png not_produced"]);
      assert.match(last(rig.seen()).at(-1)?.content ?? "", /"preview":"a,b"/);
      assert.equal(answer.end, "stop");
    });

    it("is stopped by a failing model, after what was sent", async () => {
      rig.script(runs("1"), { events: [failure("model_failed")] });
      const answer = await protocol.stream({ messages: [question] });
      assert.equal(answer.ran.length, 1);
      assert.ok(answer.events.includes("error") || answer.end === "model_failed", JSON.stringify(answer.events));
    });

    it("ends the running tool when the client leaves", async () => {
      rig.script(runs("import time\nopen('started', 'w').close()\ntime.sleep(30)"));
      const leave = new AbortController();
      const streaming = protocol.stream(
        { messages: [question] },
        (name) => {
          if (name === "agentic_tool_call_progress") setTimeout(() => leave.abort(), 300);
        },
        leave.signal,
      );
      const startedAt = performance.now();
      await assert.rejects(streaming);
      await sleep(300);
      assert.ok(performance.now() - startedAt < 3000);
      assert.equal(rig.seen().length, 1, "no further round runs");
    });

    it("asks for approval in the stream, and goes on with the answer", async () => {
      for (const [decision, result] of [
        ["approve", /"result":"42"/],
        ["deny", /^not this/],
      ] as const) {
        rig.script(runs("6 * 7"), "fine");
        const statuses: string[] = [];
        const more = { agent_permission: "ask" };
        const answer = await protocol.stream({ messages: [question], more }, (name, data) => {
          if (name !== "agentic_tool_approval_required") return;
          void (async () => {
            await sleep(20);
            const pending = (await (
              await fetch(`${rig.url}/v1/agent/approvals?session_id=${data.session_id}`)
            ).json()) as { data: { approval_id: string }[] };
            assert.deepEqual(
              pending.data.map(({ approval_id }) => approval_id),
              [data.approval_id],
            );
            const message = decision === "deny" ? { message: "not this" } : {};
            const reply = await post(`/v1/agent/approvals/${data.approval_id}`, { decision, ...message });
            statuses.push(((await reply.json()) as { status: string }).status);
            const again = await post(`/v1/agent/approvals/${data.approval_id}`, { decision: "approve" });
            statuses.push(`${again.status} ${((await again.json()) as { status: string }).status}`);
          })();
        });
        await sleep(50);
        assert.deepEqual(statuses, ["resolved", "404 not_found"]);
        assert.match(last(rig.seen()).at(-1)?.content ?? "", result);
        assert.equal(answer.text, "fine");
      }
    });

    it("asks no more after an approval for the session, also in its next request", async () => {
      rig.script(runs("1"), runs("2"), "done");
      let asked = 0;
      const ask = (more: object) =>
        protocol.stream({ messages: [question], more: { agent_permission: "ask", ...more } }, (name, data) => {
          if (name !== "agentic_tool_approval_required") return;
          asked++;
          void post(`/v1/agent/approvals/${data.approval_id}`, { decision: "approve", remember_for_session: true });
        });
      const first = await ask({});
      assert.equal(asked, 1);
      rig.script(runs("3"), "done");
      await ask({ session_id: first.session });
      assert.equal(asked, 1);
    });

    it("refuses to ask when nobody could answer", async () => {
      const path = { chat: "/v1/chat/completions", responses: "/v1/responses", messages: "/v1/messages" };
      const url = protocol === chat ? path.chat : protocol === responses ? path.responses : path.messages;
      const content = protocol === responses ? { input: "hi" } : { messages: [question] };
      const reply = await post(url, { ...content, max_tokens: 10, enable_shell: true, agent_permission: "ask" });
      assert.equal(reply.status, 400);
      assert.match(await reply.text(), /stream=true/);
    });

    it("continues a session: variables, files and hidden messages", async () => {
      rig.script(runs("kept = 'state'\nopen('kept.txt', 'w').write('file')"), "saved");
      const first = await protocol.ask({ messages: [question] });
      rig.script(runs("kept + open('kept.txt').read()"), "loaded");
      const more = { session_id: first.session };
      const second = await protocol.ask({
        messages: [question, { role: "assistant", content: "saved" }, { role: "user", content: "and now?" }],
        more,
      });
      assert.match(second.ran[0]?.result ?? "", /statefile/);
      assert.equal(second.session, first.session);
      assert.deepEqual(
        rig.seen()[0]!.map(({ role }) => role),
        ["user", "assistant", "tool", "assistant", "user"],
      );
    });

    it("finds the session by the conversation alone, and branches when a message is edited", async () => {
      const opening = { role: "user", content: `start ${protocol.name} ${Math.random()}` };
      rig.script(runs("1"), "first answer");
      const first = await protocol.ask({ messages: [opening] });
      const next = (content: string) => [
        opening,
        { role: "assistant", content: "first answer" },
        { role: "user", content },
      ];
      rig.script("second answer");
      const second = await protocol.ask({ messages: next("go on") });
      assert.equal(second.session, first.session);
      rig.script("other answer");
      const branch = await protocol.ask({ messages: next("go elsewhere") });
      assert.notEqual(branch.session, first.session);
      assert.deepEqual(
        rig.seen()[0]!.map(({ role }) => role),
        ["user", "assistant", "tool", "assistant", "user"],
      );
    });
  });
}

describe("files of an agent run", () => {
  afterEach(() => rig.script());

  it("come as parts of a chat message, by id and by content, and are in the work folder and the prompt", async () => {
    const client = new OpenAI({ baseURL: `${rig.url}/v1`, apiKey: "none" });
    const uploaded = await client.files.create({
      file: await toFile(Buffer.from("x,y\n1,2\n"), "up.csv"),
      purpose: "user_data",
    });
    rig.script(runs("sorted(open(n).read() for n in ('up.csv', 'in.txt'))"), "read");
    const content = [
      { type: "text", text: "Read these." },
      { type: "file", file: { file_id: uploaded.id } },
      {
        type: "file",
        file: { filename: "in.txt", file_data: `data:text/plain;base64,${Buffer.from("inline").toString("base64")}` },
      },
    ];
    const answer = await chat.ask({ messages: [{ role: "user", content }] });
    assert.match(answer.ran[0]?.result ?? "", /inline.*x,y/);
    const prompt = rig.seen()[0]![0]!.content;
    assert.match(prompt, /^Read these\.\n\n\[File "up\.csv", id file-\w+, text\/csv, 8 bytes\]\nx,y\n1,2\n/);
    assert.match(prompt, /\[File "in\.txt", id file-\w+, text\/plain, 6 bytes\]\ninline/);
    assert.doesNotMatch(prompt, /base64/);
  });

  it("come as parts of a response's input, and as documents of a message", async () => {
    rig.script("one", "two");
    const part = { type: "input_file", filename: "a.txt", file_data: Buffer.from("aaa").toString("base64") };
    const body = await checked(
      await post("/v1/responses", { input: [{ role: "user", content: [{ type: "input_text", text: "hi" }, part] }] }),
    );
    assert.match(body.session_id, /^sess_/);
    assert.match(rig.seen()[0]![0]!.content, /\[File "a\.txt".*\]\naaa/);
    const document = { type: "document", title: "b.txt", source: { type: "text", data: "bbb" } };
    await checked(
      await post("/v1/messages", {
        max_tokens: 10,
        messages: [{ role: "user", content: [document, { type: "text", text: "hi" }] }],
      }),
    );
    assert.match(rig.seen()[1]![0]!.content, /^hi\n\n\[File "b\.txt".*\]\nbbb/);
  });

  it("are refused by name if they are unknown, or reach into this machine", async () => {
    const refusal = async (path: string, body: object) => {
      const reply = await post(path, body);
      return [reply.status, ((await reply.json()) as { error: { message: string } }).error.message] as const;
    };
    const unknown = await refusal("/v1/chat/completions", {
      messages: [{ role: "user", content: [{ type: "file", file: { file_id: "file-none" } }] }],
    });
    assert.equal(unknown[0], 400);
    assert.match(unknown[1], /file-none/);
    const local = await refusal("/v1/responses", {
      input: [{ role: "user", content: [{ type: "input_file", file_url: `${rig.url}/v1/files` }] }],
    });
    assert.equal(local[0], 400);
    assert.match(local[1], /not public/);
    const bad = await refusal("/v1/chat/completions", {
      messages: [{ role: "user", content: [{ type: "file", file: { filename: "../x", file_data: "YQ==" } }] }],
    });
    assert.match(bad[1], /file name/);
  });

  it("are cited by the text of a response, listed by container, and downloaded as they are", async () => {
    rig.script(runs("open('chart.bin', 'wb').write(bytes(range(256)) * 8)"), "see chart");
    const body = await checked(
      await post("/v1/responses", {
        input: "draw",
        tools: [{ type: "code_interpreter", container: { type: "auto" } }],
      }),
    );
    const message = body.output.find((item: any) => item.type === "message");
    const [citation] = message.content[0].annotations;
    assert.deepEqual(
      [citation.type, citation.filename, citation.container_id],
      ["container_file_citation", "chart.bin", `cntr_${body.session_id}`],
    );
    const list = await checked(await fetch(`${rig.url}/v1/containers/${citation.container_id}/files`));
    assert.deepEqual(
      list.data.map((file: any) => file.id),
      [citation.file_id],
    );
    const content = await fetch(`${rig.url}/v1/containers/${citation.container_id}/files/${citation.file_id}/content`);
    assert.deepEqual(
      Buffer.from(await content.arrayBuffer()),
      Buffer.from(Array.from({ length: 2048 }, (_, i) => i % 256)),
    );
    const missing = rig.state.files;
    const stored = await missing.find(citation.file_id);
    assert.equal(stored?.purpose, "agent_output");
  });

  it("that were not produced answer 422", async () => {
    rig.script({ calls: [[python, { code: "1", outputs: [{ name: "none.txt" }] }]] }, "sorry");
    const body = await chat.ask({ messages: [question] });
    const [file] = (body.raw as { files: { id: string; code: string }[] }).files;
    assert.equal(file?.code, "not_produced");
    assert.equal((await fetch(`${rig.url}/v1/files/${file?.id}/content`)).status, 422);
  });

  it("are read by the model with read_file and list_files", async () => {
    rig.script(commands("seq 1 1000 > long.txt"), { calls: [["service_list_files", {}]] }, "listed");
    const { ran } = await chat.ask({ messages: [question] });
    const id = /"id":"(file_\w+)"/.exec(ran[1]?.result ?? "")?.[1];
    rig.script(
      {
        calls: [
          ["service_read_file", { file_id: id, start: 0, end: 8 }],
          ["service_read_file", { file_id: "x" }],
        ],
      },
      "read",
    );
    const second = await chat.ask({ messages: [question] });
    assert.match(second.ran[0]?.result ?? "", /"content":"1\\n2\\n3\\n4\\n"/);
    assert.match(second.ran[1]?.result ?? "", /no file has the id/);
  });
});

describe("sessions of agent runs", () => {
  it("move to another server and go on there", async () => {
    rig.script(commands("echo data > moved.txt"), "made");
    const first = await chat.ask({ messages: [question] });
    const exported = await checked(await fetch(`${rig.url}/v1/sessions/${first.session}`));
    assert.deepEqual(
      exported.messages.map((message: any) => [message.role, message.visible]),
      [
        ["user", 0],
        ["assistant", 1],
        ["tool", 1],
        ["assistant", 1],
      ],
    );
    assert.equal(exported.files[0].text, "data\n");
    const other = await startAgents();
    try {
      const put = await fetch(`${other.url}/v1/sessions/${first.session}`, {
        method: "PUT",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(exported),
      });
      assert.deepEqual([put.status, await put.json()], [200, {}]);
      other.script("there");
      const body = {
        messages: [question, { role: "assistant", content: "made" }, { role: "user", content: "go on" }],
        session_id: first.session,
      };
      const reply = await fetch(`${other.url}/v1/chat/completions`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      assert.equal(reply.status, 200, await reply.clone().text());
      assert.deepEqual(
        other.seen()[0]!.map(({ role }) => role),
        ["user", "assistant", "tool", "assistant", "user"],
      );
      assert.equal((await fetch(`${other.url}/v1/files/${exported.files[0].id}/content`)).status, 200);
    } finally {
      await other.stop();
    }
  });

  it("are deleted with their state, and importing nonsense is refused", async () => {
    rig.script(runs("1"), "one");
    const { session } = await chat.ask({ messages: [question] });
    for (const deleted of [true, false]) {
      const reply = await fetch(`${rig.url}/v1/sessions/${session}`, { method: "DELETE" });
      assert.deepEqual([reply.status, ((await reply.json()) as { deleted: boolean }).deleted], [200, deleted]);
    }
    assert.equal((await fetch(`${rig.url}/v1/sessions/${session}`)).status, 404);
    for (const body of [
      {},
      { version: 2 },
      {
        version: 1,
        turns: 0,
        messages: [{ role: "user", content: "x", visible: 5 }],
        images: [],
        videos: [],
        files: [],
      },
    ]) {
      const reply = await fetch(`${rig.url}/v1/sessions/abc`, {
        method: "PUT",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
      });
      assert.equal(reply.status, 400);
    }
  });
});

describe("official clients", () => {
  it("OpenAI's reads an agent's stream, its response items and its continuation", async () => {
    const client = new OpenAI({ baseURL: `${rig.url}/v1`, apiKey: "none" });
    rig.script(runs("6 * 7"), "42", "again 42");
    const first = await client.responses.create({
      model: "tiny",
      input: "6 * 7?",
      tools: [{ type: "code_interpreter", container: { type: "auto" } }],
    });
    assert.deepEqual(
      first.output.map(({ type }) => type),
      ["code_interpreter_call", "message"],
    );
    const second = await client.responses.create({ model: "tiny", input: "again?", previous_response_id: first.id });
    assert.equal(second.output_text, "again 42");
    assert.deepEqual(
      last(rig.seen()).map(({ role }) => role),
      ["user", "assistant", "tool", "assistant", "user"],
    );
    assert.match(last(rig.seen())[2]!.content, /"result":"42"/, "the result is the one that the model had read");
    rig.script(runs("1"), "streamed");
    let text = "";
    const stream = await client.chat.completions.create({
      model: "tiny",
      stream: true,
      messages: [{ role: "user", content: "hi" }],
      tools: [{ type: "code_interpreter" } as never],
    });
    for await (const chunk of stream) text += chunk.choices?.[0]?.delta.content ?? "";
    assert.equal(text, "streamed");
  });

  it("Anthropic's accumulates the blocks of server tools", async () => {
    const client = new Anthropic({ baseURL: rig.url, apiKey: "none" });
    rig.script({ text: "Computing. ", calls: [[python, { code: "6 * 7" }]] }, "42");
    const stream = client.messages.stream({
      model: "tiny",
      max_tokens: 100,
      messages: [{ role: "user", content: "6 * 7?" }],
      tools: [{ type: "code_execution_20250522", name: "code_execution" }] as never,
    });
    const message = await stream.finalMessage();
    assert.deepEqual(
      message.content.map(({ type }) => type),
      ["text", "server_tool_use", "code_execution_tool_result", "text"],
    );
    assert.equal(message.stop_reason, "end_turn");
  });
});

describe("tools of the client that the server dispatches", () => {
  it("are posted to the URL, signed, and retried; a failure is a result", async () => {
    const received: { body: { name: string; arguments: unknown }; signature: string | undefined }[] = [];
    let failures = 1;
    const target = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk as Buffer);
      received.push({
        body: JSON.parse(Buffer.concat(chunks).toString()),
        signature: request.headers["x-troupe-signature"] as string,
      });
      response.statusCode = failures-- > 0 ? 503 : 200;
      response.end(JSON.stringify({ content: "sunny" }));
    });
    await new Promise<void>((resolve) => target.listen(0, "127.0.0.1", resolve));
    const { port } = target.address() as { port: number };
    const dispatching = await startAgents({
      dispatch: { url: `http://127.0.0.1:${port}/`, timeoutMs: 2000, secret: "key" },
    });
    try {
      dispatching.script({ calls: [["get_weather", { city: "Bonn" }]] }, "It is sunny.");
      const ask = () =>
        fetch(`${dispatching.url}/v1/chat/completions`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ messages: [question], tools: [{ type: "function", function: weather }] }),
        });
      const body = await checked(await ask());
      assert.equal(body.choices[0].message.content, "It is sunny.");
      assert.deepEqual(
        received.map((one) => one.body),
        Array(2).fill({ name: "get_weather", arguments: { city: "Bonn" } }),
      );
      assert.match(received[0]?.signature ?? "", /^t=\d+,v1=[0-9a-f]{64}$/);
      assert.equal(body.agentic_tool_calls[0].result_content, "sunny");
      target.close();
      target.closeAllConnections();
      dispatching.script({ calls: [["get_weather", {}]] }, "sorry");
      const failed = await checked(await ask());
      assert.match(failed.agentic_tool_calls[0].result_content, /"status":"failed"/);
    } finally {
      await dispatching.stop();
      target.close();
    }
  });
});
