// Task of the coding agents, and the scripted model that does it with the agent's tools: inspect the folder, write a program,
// run it, see it fail, correct it, run it again, respond.
import type { ChatMessage, ToolSpec } from "../../../engines/generation.ts";
import type { Turn } from "../agents/rig.ts";
import type { Call, CodingAgent } from "./coding-agent.ts";

export const task = "Write total.py, which prints the sum of the numbers in numbers.txt, and run it.";
export const numbers = "19\n20\n3\n";
export const answer = "The program total.py prints 42.";
/** Number of rounds in which the scripted model returns calls or the final response. */
export const modelRounds = 6;
const faultyLine = "    print(sum(int(line) for line in files))";
const correctLine = "    print(sum(int(line) for line in file))";
export const correctProgram = `with open("numbers.txt") as file:\n${correctLine}\n`;
const faultyProgram = correctProgram.replace(correctLine, faultyLine);

/** One round of the model: its calls, and what the results of the previous round must contain. */
interface Step {
  readonly expects: RegExp;
  readonly calls: readonly Call[];
}

/** Returns the rounds of the task. The last round has no calls. `serverCalls`: calls of the server's tools in the first round. */
function stepsOf(agent: CodingAgent, folder: string, serverCalls: readonly Call[]): readonly Step[] {
  const path = `${folder}/total.py`;
  return [
    { expects: /^$/, calls: [agent.run("ls"), agent.read(`${folder}/numbers.txt`), ...serverCalls] },
    { expects: /numbers\.txt[\s\S]*19\s[\s\S]*20\s[\s\S]*3/, calls: [agent.create(path, faultyProgram)] },
    { expects: /total\.py|[Ss]uccess/, calls: [agent.run("python3 total.py")] },
    { expects: /NameError: name 'files' is not defined/, calls: [agent.edit(path, faultyLine, correctLine)] },
    { expects: /total\.py|[Ss]uccess/, calls: [agent.run("python3 total.py")] },
    { expects: /\b42\b/, calls: [] },
  ];
}

/**
 * Creates the scripted model, a function that is called in each round with the chat and the tools. A request without tools,
 * such as for a title, gets a short text. If the results of a round are not as expected, the model's response says so.
 */
export function scriptedModel(agent: CodingAgent, folder: string, serverCalls: readonly Call[]) {
  const steps = stepsOf(agent, folder, serverCalls);
  return (chat: readonly ChatMessage[], tools: readonly ToolSpec[]): Turn => {
    if (tools.length === 0) return "Sum of numbers";
    const round = chat.filter(({ toolCalls = [] }) => toolCalls.length > 0).length;
    const { expects, calls } = steps[round] ?? { expects: /^$/, calls: [] };
    const results = lastResults(chat);
    if (!expects.test(results)) return `Round ${round} expects results with ${expects}; got: ${results}`;
    const missing = calls.find(([name]) => !tools.some((tool) => tool.name === name));
    if (missing !== undefined) return `Round ${round} expects a tool ${missing[0]}; got none.`;
    if (calls.length === 0) return answer;
    return { reasoning: `Step ${round + 1}.`, text: `Doing step ${round + 1}.`, calls };
  };
}

/** Returns the tool results at the end of the chat. */
function lastResults(chat: readonly ChatMessage[]): string {
  const last = chat.findLastIndex(({ role }) => role === "assistant");
  const results = chat.slice(last + 1).filter(({ role }) => role === "tool");
  return results.map(({ content }) => content).join("\n");
}
