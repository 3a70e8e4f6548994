// Input items: assigns an id to every item of a request, and replaces references with the items they refer to.
import type { ItemTexts } from "../../../actors/api/stored-responses.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { MAX_BODY_BYTES } from "../../server/body.ts";
import type { AnswerLease } from "../../shared/answer/answer-memory.ts";
import { itemId, responseOfItem } from "../fold/fold.ts";
import type { Responses } from "../responses.ts";
import type { InputItem, NamedItem } from "./input-items.ts";
import { itemText, joinedItemTexts } from "./item-texts.ts";
import type { ResponseRequestBody } from "./request.ts";

/** Maximum number of different responses to which the item references of one request may point. */
const MAX_REFERRED = 256;
/** Maximum bytes of the referenced items; the same limit as for a body that contains the items. */
const MAX_REFERRED_BYTES = MAX_BODY_BYTES;

const prefixes = {
  message: "msg",
  function_call: "fc",
  function_call_output: "fco",
  code_interpreter_call: "ci",
  shell_call: "sc",
  shell_call_output: "sco",
  web_search_call: "ws",
  mcp_call: "mcp",
  reasoning: "rs",
  compaction: "cmp",
} as const;

/** Reference to a stored item. `at`: index in the input. */
export interface InputReference {
  readonly id: string;
  readonly at: number;
}

/** Returns the input items of a request in order, with ids. */
export function inputItems(
  input: ResponseRequestBody["input"],
  responseId: string,
): readonly (NamedItem | InputReference)[] {
  if (input === null || input === undefined) return [];
  if (typeof input === "string") return [named({ role: "user", content: input }, responseId, 0)];
  return input.map((item, at) => (item.type === "item_reference" ? { id: item.id, at } : named(item, responseId, at)));
}

export function isReference(item: NamedItem | ItemTexts | InputReference): item is InputReference {
  return "at" in item;
}

/**
 * Replaces references with the stored items. The lease counts the bytes of these items before they are read. Throws not_found
 * if a referenced item is not stored, and queue_full if the memory limit is exceeded.
 */
export async function referredItems(
  input: readonly (ItemTexts | InputReference)[],
  responses: Responses,
  lease: AnswerLease,
): Promise<ItemTexts> {
  const referred = new ReferredItems(responses, lease);
  const texts: ItemTexts[] = [];
  for (const part of input) texts.push(isReference(part) ? await referred.find(part) : part);
  return joinedItemTexts(texts);
}

class ReferredItems {
  readonly #responses: Responses;
  readonly #lease: AnswerLease;
  readonly #known = new Set<string>();
  readonly #items = new Map<string, ItemTexts>();
  #bytes = 0;

  constructor(responses: Responses, lease: AnswerLease) {
    this.#responses = responses;
    this.#lease = lease;
  }

  async find({ id, at }: InputReference): Promise<ItemTexts> {
    const item = this.#items.get(id) ?? (await this.#read(id, at));
    this.#bytes += item.texts.byteLength;
    if (this.#bytes > MAX_REFERRED_BYTES) throw tooLarge(at);
    return item;
  }

  async #read(id: string, at: number): Promise<ItemTexts> {
    const response = responseOfItem(id);
    if (response !== null) this.#refer(response, at);
    const text = response === null ? null : await this.#responses.item(response, id);
    if (text === null) {
      throw new ServerError("not_found", `Item with ID '${id}' not found: no stored response has it`, {
        param: `input[${at}].id`,
      });
    }
    if (this.#bytes + text.bytes > MAX_REFERRED_BYTES) throw tooLarge(at);
    this.#lease.add(text.bytes);
    const item = itemText(id, await text.read());
    this.#items.set(id, item);
    return item;
  }

  #refer(response: string, at: number): void {
    this.#known.add(response);
    if (this.#known.size <= MAX_REFERRED) return;
    const text = `expected references to items of at most ${MAX_REFERRED} responses; send previous_response_id, or the items`;
    throw new ServerError("invalid_value", text, { param: `input[${at}]` });
  }
}

function tooLarge(at: number): ServerError {
  const text = `expected references to items of at most ${MAX_REFERRED_BYTES} bytes in total, counting every reference`;
  return new ServerError("invalid_value", text, { param: `input[${at}]` });
}

function named(item: InputItem, responseId: string, index: number): NamedItem {
  const type = item.type ?? "message";
  const id = item.id ?? itemId(prefixes[type], responseId, `in${index}`);
  if (!("role" in item)) return { ...item, id };
  const { role, content } = item;
  // String content becomes a list with one part, because content in responses is always a list of parts.
  const part = { type: role === "assistant" ? "output_text" : "input_text", text: content } as const;
  const parts = typeof content === "string" ? [{ ...part, text: content }] : content;
  return { ...item, type: "message", id, status: item.status ?? "completed", content: parts };
}
