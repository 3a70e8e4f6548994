// Capability probe: finds the kinds of messages and tools that a chat template accepts, because templates do not
// declare them. A text worker renders test conversations once for each model. A capability is present if the test text
// appears in the prompt.
import type { ToolSpec } from "../../generation.ts";
import type { Renderer } from "./renderer.ts";
import type { CallCapabilities, TemplateCapabilities } from "./template-capabilities.ts";
import { type ParsedMessage, type TemplateMessage, templateMessages, templateTool } from "./template-messages.ts";

const content = "probe5731";
const result = "result6842";
const thoughts = "thoughts9153";
const called = ["call_tool3961", "call_tool7204"] as const;
const key = "key4418";
const values = ["value2907", "value7365"] as const;

/**
 * The offered tool and the called tools have different names, so that calls can be distinguished
 * from the tool list in a prompt.
 */
const tool: ToolSpec = {
  name: "offered_tool8350",
  description: "a tool",
  parameters: { type: "object", properties: { city: { type: "string", description: "a city" } }, required: ["city"] },
  strict: false,
};

const user: ParsedMessage = { role: "user", content: "hi" };

const noCalls: CallCapabilities = {
  shown: false,
  textArguments: false,
  nullContent: false,
  ids: "any",
  several: true,
  besideContent: "together",
  withThoughts: true,
};

export function probeCapabilities(source: string, renderer: Renderer): TemplateCapabilities {
  const takesDeveloper = source.includes("developer");
  const probe = new Probe(renderer);
  const plain: TemplateCapabilities = {
    works: false,
    wantsParts: false,
    takesSystem: true,
    takesDeveloper,
    takesTools: false,
    takesResults: false,
    calls: noCalls,
  };
  const saying = [{ role: "user", content }];
  const takesText = probe.shows(saying, plain, content);
  const wantsParts = !takesText && probe.shows(saying, { ...plain, wantsParts: true }, content);
  const base: TemplateCapabilities = { ...plain, works: takesText || wantsParts, wantsParts };
  if (!base.works) return base;
  const takesSystem = probe.shows([{ role: "system", content }, user], base, content);
  const withSystem: TemplateCapabilities = { ...base, takesSystem };
  const takesTools = probe.shows([user], { ...withSystem, takesTools: true }, tool.name);
  const withTools: TemplateCapabilities = { ...withSystem, takesTools };
  const calls = findCalls(probe, withTools);
  // A template may print a role that it does not support. So a role counts as supported only if the source also names
  // it.
  const namesRole = /["']tool["']/.test(source);
  const takesResults = calls.shown || (namesRole && probe.shows(answered, withTools, result));
  return { ...withTools, takesResults, calls };
}

const answered: readonly ParsedMessage[] = [
  user,
  { role: "assistant", content: "hello" },
  { role: "tool", content: result, toolCallId: "call_105000" },
];

/**
 * Returns the first variant of call capabilities with which calls appear in the prompt. Prefers a variant in which a
 * call and its result have the same id, or neither has an id.
 */
function findCalls(probe: Probe, base: TemplateCapabilities): CallCapabilities {
  let first: TemplateCapabilities | null = null;
  for (const textArguments of [false, true]) {
    for (const nullContent of [false, true]) {
      for (const ids of ["any", "short", "naming"] as const) {
        const capabilities = { ...base, calls: { ...noCalls, shown: true, textArguments, nullContent, ids } };
        const messages = conversation(1);
        if (!probe.showsCalls(messages, capabilities, 1)) continue;
        first ??= capabilities;
        if (probe.agreesOnIds(messages, capabilities)) return details(probe, capabilities);
      }
    }
  }
  return first === null ? noCalls : details(probe, first);
}

function details(probe: Probe, base: TemplateCapabilities): CallCapabilities {
  const several = probe.showsCalls(conversation(2), base, 2);
  const having = (besideContent: CallCapabilities["besideContent"]): TemplateCapabilities => ({
    ...base,
    calls: { ...base.calls, several, besideContent },
  });
  const saying = conversation(1, { content });
  const ways = (["together", "apart"] as const).filter((way) => probe.showsCalls(saying, having(way), 1, content));
  const capabilities = having(ways[0] ?? "lost");
  const withThoughts = probe.renders(conversation(1, { content, reasoning: thoughts }), capabilities) !== null;
  return { ...capabilities.calls, withThoughts };
}

/**
 * Returns a conversation with a message of `count` calls, their results, and two more messages. Some templates count
 * turns, so these two messages are needed.
 */
function conversation(count: 1 | 2, more: Partial<ParsedMessage> = {}): ParsedMessage[] {
  const calls = called.slice(0, count).map((name, i) => {
    const args = { [key]: values[i] };
    return { id: `call_10500${i}`, name, arguments: args, text: JSON.stringify(args) };
  });
  return [
    user,
    { role: "assistant", content: "", toolCalls: calls, ...more },
    ...calls.map(({ id, name }) => ({ role: "tool", content: result + name, toolCallId: id })),
    { role: "assistant", content: "hello" },
    user,
  ];
}

/** Renders test conversations with the capabilities found so far. */
class Probe {
  readonly #renderer: Renderer;

  constructor(renderer: Renderer) {
    this.#renderer = renderer;
  }

  shows(messages: readonly ParsedMessage[], capabilities: TemplateCapabilities, text: string): boolean {
    return this.renders(messages, capabilities)?.includes(text) ?? false;
  }

  /**
   * True if calls, results and `texts` appear in the prompt. Arguments that appear as JSON inside a JSON string do not
   * count.
   */
  showsCalls(
    messages: readonly ParsedMessage[],
    capabilities: TemplateCapabilities,
    count: number,
    ...texts: string[]
  ): boolean {
    const names = called.slice(0, count);
    const wanted = [...names, key, ...values.slice(0, count), ...names.map((name) => result + name), ...texts];
    const prompt = this.renders(messages, capabilities) ?? "";
    return wanted.every((text) => prompt.includes(text)) && !prompt.includes(`\\"${key}`);
  }

  agreesOnIds(messages: readonly ParsedMessage[], capabilities: TemplateCapabilities): boolean {
    const answer = templateMessages(messages, capabilities).find(({ tool_call_id }) => tool_call_id !== undefined);
    const prompt = this.renders(messages, capabilities) ?? "";
    return prompt.split(answer?.tool_call_id ?? "").length !== 2;
  }

  /** Returns the prompt; null if the template fails. */
  renders(messages: readonly ParsedMessage[], capabilities: TemplateCapabilities): string | null {
    const shaped: readonly TemplateMessage[] = templateMessages(messages, capabilities);
    try {
      return this.#renderer.render(shaped, capabilities.takesTools ? [templateTool(tool)] : []);
    } catch {
      return null;
    }
  }
}
