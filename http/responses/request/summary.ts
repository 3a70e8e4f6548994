// Summary request: asks the model to summarise a conversation. The conversation becomes one text, because chat templates accept
// only some orders of roles, and tool messages would need the definitions of their tools.
import { noEarlierCalls } from "../../../actors/api/agent/agents.ts";
import type { ItemTexts } from "../../../actors/api/stored-responses.ts";
import type { ChatMessage } from "../../../engines/generation.ts";
import { type Conversation, wholeConversation } from "./conversation.ts";
import type { InputItem } from "./input-items.ts";

const TASK =
  "Summarise the conversation above, so that another assistant can continue it from your summary alone. Keep the goals of the " +
  "user, decisions, facts, names, numbers, results of tools and open tasks. Write only the summary.";

/**
 * JSON fragments that every item with instructions contains. Few other items contain them, because quotes within a JSON string are
 * escaped.
 */
const roleMarks = ['"role":"system"', '"role":"developer"'];

/** Returns the messages of a summary request. Throws invalid_value if there is nothing to summarise. */
export function summaryConversation(instructions: string | null, items: readonly InputItem[]): Conversation {
  const { messages: said } = wholeConversation(
    null,
    items.filter((item) => !isInstruction(item)),
  );
  const content = `${said.map(spoken).join("\n\n")}\n\n${TASK}`;
  const task = { role: "user", content };
  const messages = instructions === null ? [task] : [{ role: "system", content: instructions }, task];
  return { messages, files: [], earlierCalls: noEarlierCalls };
}

/** Returns the system and developer messages of a conversation. A summary does not replace them. */
export function instructionItems(lists: readonly ItemTexts[]): readonly object[] {
  return lists.flatMap((list) =>
    itemsAsText(list)
      .filter(isMarked)
      .map((text) => JSON.parse(`${text}`) as InputItem)
      .filter(isInstruction),
  );
}

function isInstruction(item: InputItem): boolean {
  return "role" in item && (item.role === "system" || item.role === "developer");
}

function isMarked(text: Buffer): boolean {
  return roleMarks.some((mark) => text.includes(mark));
}

function itemsAsText({ texts, ends }: ItemTexts): readonly Buffer[] {
  return Array.from(ends, (end, i) => {
    const start = i === 0 ? 0 : (ends[i - 1] as number) + 1;
    return Buffer.from(texts.buffer, texts.byteOffset + start, end - start);
  });
}

function spoken({ role, content, toolCalls = [] }: ChatMessage): string {
  const calls = toolCalls.map(({ name, arguments: given }) => `[calls ${name}: ${given}]`);
  return `${role}: ${[content, ...calls].filter((part) => part !== "").join("\n")}`;
}
