// Agent on /v1/responses that reads files in a folder to answer a question.
// Usage: `node examples/agent.ts "What is this?" FOLDER`.
// Each round continues the previous stored response, so it sends only the results of the tool calls. Uses no library.
// Small models are poor agents: use a model with 4B parameters or more (`npx troupe models`). TROUPE_URL is the address
// of the server, TROUPE_KEY its API key if it has one.
import { readdir, readFile } from "node:fs/promises";
import { isAbsolute, relative, resolve } from "node:path";

interface Item {
  readonly type: string;
  readonly call_id?: string;
  readonly name?: string;
  readonly arguments?: string;
  readonly content?: readonly { readonly text?: string }[];
}

interface Answer {
  readonly id: string;
  readonly output: readonly Item[];
}

const [question = "What is in this folder? Answer in one sentence.", folder = "."] = process.argv.slice(2);
const url = process.env.TROUPE_URL ?? "http://localhost:1234";
const maxRounds = 8;
const maxResultLength = 2000;

const path = { type: "string", description: "A path below the folder, such as `.` or `src/main.c`." };
const parameters = { type: "object", properties: { path }, required: ["path"], additionalProperties: false };
const tools = [
  { type: "function", name: "list_folder", description: "Lists the names in a folder.", strict: true, parameters },
  { type: "function", name: "read_file", description: "Reads the beginning of a file.", strict: true, parameters },
];

/** Returns the result of a tool call. An error is also a result, because the model can then try another call. */
async function run(name: string, argumentsJson: string): Promise<string> {
  try {
    const wanted: string = JSON.parse(argumentsJson).path;
    const target = resolve(folder, wanted);
    const inside = relative(folder, target);
    if (inside.startsWith("..") || isAbsolute(inside)) return `error: ${wanted} is outside the folder`;
    const text = name === "read_file" ? await readFile(target, "utf8") : (await readdir(target)).join("\n");
    return text.slice(0, maxResultLength);
  } catch (error) {
    return `error: ${error instanceof Error ? error.message : error}`;
  }
}

async function respond(body: object): Promise<Answer> {
  const reply = await fetch(`${url}/v1/responses`, {
    method: "POST",
    headers: { "content-type": "application/json", authorization: `Bearer ${process.env.TROUPE_KEY ?? "none"}` },
    body: JSON.stringify({ model: "default", tools, ...body }),
  });
  if (!reply.ok) throw new Error(`${reply.status}: ${await reply.text()}`);
  return (await reply.json()) as Answer;
}

// The first round requires a tool call, so that even a small model reads the folder before it answers.
let response = await respond({ input: question, tool_choice: "required", parallel_tool_calls: false });
for (let round = 1; round < maxRounds; round++) {
  const calls = response.output.filter(({ type }) => type === "function_call");
  if (calls.length === 0) break;
  const input = [];
  for (const { call_id, name = "", arguments: argumentsJson = "" } of calls) {
    console.log(`> ${name} ${argumentsJson}`);
    input.push({ type: "function_call_output", call_id, output: await run(name, argumentsJson) });
  }
  // The last round allows no tool calls, so the model must answer.
  const tool_choice = round === maxRounds - 1 ? "none" : "auto";
  response = await respond({ previous_response_id: response.id, input, tool_choice });
}
for (const { content = [] } of response.output) for (const { text } of content) if (text) console.log(text);
