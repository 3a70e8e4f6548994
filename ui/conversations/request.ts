// Request body for an answer: the conversation as items of the Responses protocol, and the settings.
import type { OutputItem } from "../server/wire.ts";
import type { Answer, ChatSettings, Message, UserMessage } from "./records.ts";

const alternatives = 5;

/** Returns the request body. `path`: the messages before the answer. If the last one is an answer, the request continues it. */
export function requestBody(path: readonly Message[], settings: ChatSettings, model: string): object {
  const { system, adapter, temperature, topP, topK, minP, repetitionPenalty, maxTokens, seed, effort } = settings;
  const tools = toolsOf(settings);
  return {
    model: model === "" ? "default" : model,
    input: path.flatMap((message) => (message.role === "user" ? [userItem(message)] : sentItems(message))),
    stream: true,
    // A background response continues if the connection breaks, and its events can be read again later.
    background: true,
    store: true,
    ...given({
      instructions: system === "" ? null : system,
      adapter: adapter === "" ? null : adapter,
      temperature,
      top_p: topP,
      top_k: topK,
      min_p: minP,
      repetition_penalty: repetitionPenalty,
      max_output_tokens: maxTokens,
      seed,
      reasoning: effort === "" ? null : { effort },
      text: formatOf(settings),
      tools: tools.length === 0 ? null : tools,
      agent_permission: tools.length > 0 && settings.asksApproval ? "ask" : null,
    }),
    ...(settings.logprobs ? { include: ["message.output_text.logprobs"], top_logprobs: alternatives } : {}),
  };
}

/** Returns the output format for the schema in the settings. Throws a SyntaxError if the schema is not JSON. */
function formatOf({ schema }: ChatSettings): object | null {
  if (schema.trim() === "") return null;
  return { format: { type: "json_schema", name: "answer", strict: true, schema: JSON.parse(schema) as object } };
}

function toolsOf({ tools, skills }: ChatSettings): readonly object[] {
  return tools.map((name) => {
    if (name.startsWith("mcp:")) return { type: "mcp", server_label: name.slice("mcp:".length) };
    if (name === "code") return { type: "code_interpreter", container: { type: "auto" } };
    if (name === "search") return { type: "web_search" };
    const chosen = skills.map((skill_id) => ({ type: "skill_reference", skill_id }));
    const environment = chosen.length === 0 ? {} : { environment: { type: "container_auto", skills: chosen } };
    return { type: "shell", ...environment };
  });
}

function userItem({ text, files }: UserMessage): object {
  const parts = files.map(({ id }) => ({ type: "input_file", file_id: id }));
  return { role: "user", content: parts.length === 0 ? text : [{ type: "input_text", text }, ...parts] };
}

/** Returns the items of an answer without logprobs, which the server does not need. */
function sentItems({ output, isEdited }: Answer): readonly object[] {
  const items = isEdited ? output.filter(({ type }) => type === "message") : output;
  return items.map((item) =>
    item.type === "message" ? { ...item, content: (item.content ?? []).map(withoutLogprobs) } : item,
  );
}

function withoutLogprobs(part: NonNullable<OutputItem["content"]>[number]): object {
  const { logprobs: _left, ...rest } = part;
  return rest;
}

function given(fields: Readonly<Record<string, unknown>>): object {
  return Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== null));
}
