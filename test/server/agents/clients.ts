// biome-ignore-all lint/suspicious/noExplicitAny: the bodies of three protocols are read field by field
// Clients for tests of agent runs: each sends a request in one of three protocols and returns the response in a common form.
import assert from "node:assert/strict";
import type { Turn } from "./rig.ts";

export const python = "service_execute_python";
export const shell = "service_shell";
export const runs = (code: string): Turn => ({ calls: [[python, { code }]] });
export const commands = (...list: string[]): Turn => ({ calls: [[shell, { commands: list }]] });
export const weather = {
  name: "get_weather",
  description: "The weather",
  parameters: { type: "object", properties: { city: { type: "string" } } },
};

/** Response of any protocol, in a common form. */
export interface Answer {
  readonly text: string;
  /** Names and results of the tools that the server ran. */
  readonly ran: readonly { readonly name: string; readonly result: string }[];
  readonly clientCalls: readonly { readonly name: string; readonly id: string }[];
  readonly session: string | undefined;
  readonly end: string;
  readonly events: readonly string[];
  readonly raw: unknown;
}

export interface Ask {
  readonly messages: readonly object[];
  readonly more?: Record<string, unknown>;
  readonly clientTools?: boolean;
}

export interface Protocol {
  readonly name: string;
  ask(url: string, ask: Ask): Promise<Answer>;
  stream(
    url: string,
    ask: Ask,
    onEvent?: (name: string, data: Record<string, unknown>) => void,
    signal?: AbortSignal,
  ): Promise<Answer>;
}

export interface ServerEvent {
  readonly name: string;
  readonly data: Record<string, unknown>;
}

/** Yields the server-sent events of a stream. */
export async function* eventsOf(response: Response): AsyncGenerator<ServerEvent> {
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

export function post(url: string, body: object, signal: AbortSignal | null = null): Promise<Response> {
  const headers = { "content-type": "application/json" };
  return fetch(url, { method: "POST", headers, body: JSON.stringify(body), signal });
}

/** Returns the body of a response. Asserts that the status is a success. */
export async function checked(response: Response): Promise<Record<string, any>> {
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

export const chat: Protocol = {
  name: "chat completions",
  async ask(url, { messages, more = {}, clientTools }) {
    const tools = clientTools ? [{ type: "function", function: weather }] : [];
    const body = await checked(
      await post(`${url}/v1/chat/completions`, {
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
  async stream(url, { messages, more = {}, clientTools }, onEvent = () => {}, signal) {
    const tools = clientTools ? [{ type: "function", function: weather }] : [];
    const response = await post(
      `${url}/v1/chat/completions`,
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

export const responses: Protocol = {
  name: "responses",
  async ask(url, { messages, more = {}, clientTools }) {
    const tools = clientTools ? [{ type: "function", ...weather }] : [];
    const body = await checked(
      await post(`${url}/v1/responses`, {
        input: inputOf(messages),
        tools: [{ type: "code_interpreter", container: { type: "auto" } }, { type: "shell" }, ...tools],
        ...more,
      }),
    );
    return { ...ofResponse(body), events: [], raw: body };
  },
  async stream(url, { messages, more = {}, clientTools }, onEvent = () => {}, signal) {
    const tools = clientTools ? [{ type: "function", ...weather }] : [];
    const response = await post(
      `${url}/v1/responses`,
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

export const messages: Protocol = {
  name: "messages",
  async ask(url, { messages, more = {}, clientTools }) {
    const tools = clientTools ? [{ name: weather.name, input_schema: weather.parameters }] : [];
    const body = await checked(
      await post(`${url}/v1/messages`, {
        messages: blocksOf(messages),
        max_tokens: 1000,
        tools: [{ type: "code_execution_20250825", name: "code_execution" }, ...tools],
        ...more,
      }),
    );
    return { ...ofMessage(body), events: [], raw: body };
  },
  async stream(url, { messages, more = {}, clientTools }, onEvent = () => {}, signal) {
    const tools = clientTools ? [{ name: weather.name, input_schema: weather.parameters }] : [];
    const response = await post(
      `${url}/v1/messages`,
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

export const question = { role: "user", content: "What is 6 * 7?" };
