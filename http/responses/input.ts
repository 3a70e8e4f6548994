// Owns the way from a request's input to the items it adds to the conversation: every item gets a name, and references become
// what they refer to. What the conversation goes on from comes before.
import { ServerError } from "../../runtime/errors.ts";
import { itemId, responseOfItem } from "./fold.ts";
import type { InputItem, NamedItem, WireItem } from "./input-items.ts";
import type { ResponseRequestBody } from "./request.ts";
import type { Responses } from "./responses.ts";

/** Responses one input may refer to items of. */
const MAX_REFERRED = 256;

const prefixes = { message: "msg", function_call: "fc", function_call_output: "fco", reasoning: "rs" } as const;

/** The items of a request, of the response that is to answer it. Throws not_found where one refers to what is not kept. */
export async function inputItems(
  input: ResponseRequestBody["input"],
  responseId: string,
  responses: Responses,
): Promise<readonly NamedItem[]> {
  if (input === null || input === undefined) return [];
  if (typeof input === "string") return [named({ role: "user", content: input }, responseId, 0)];
  const referred = new ReferredItems(responses);
  const items: NamedItem[] = [];
  for (const [i, item] of input.entries()) {
    // Only what refers is waited for: inputs are long.
    if (item.type === "item_reference") items.push(await referred.find(item.id, i));
    else items.push(named(item, responseId, i));
  }
  return items;
}

/** The items of all that a response goes on from. */
export async function earlierItems(previousId: string | null, responses: Responses): Promise<readonly InputItem[]> {
  if (previousId === null) return [];
  const turns = await responses.history(previousId);
  return turns.flatMap((turn) => JSON.parse(turn) as readonly InputItem[]);
}

class ReferredItems {
  readonly #responses: Responses;
  readonly #itemsOf = new Map<string, readonly NamedItem[]>();

  constructor(responses: Responses) {
    this.#responses = responses;
  }

  async find(id: string, at: number): Promise<NamedItem> {
    const response = responseOfItem(id);
    const items = response === null ? [] : await this.#items(response, at);
    const found = items.find((item) => item.id === id);
    if (found !== undefined) return found;
    throw new ServerError("not_found", `Item with ID '${id}' not found: it is of no response that is kept`, {
      param: `input[${at}].id`,
    });
  }

  async #items(response: string, at: number): Promise<readonly NamedItem[]> {
    const known = this.#itemsOf.get(response);
    if (known !== undefined) return known;
    if (this.#itemsOf.size >= MAX_REFERRED) {
      const text = `expected references to items of at most ${MAX_REFERRED} responses; send previous_response_id, or the items`;
      throw new ServerError("invalid_value", text, { param: `input[${at}]` });
    }
    const items = await this.#responses.items(response);
    this.#itemsOf.set(response, items);
    return items;
  }
}

function named(
  item: Exclude<WireItem, { readonly type: "item_reference" }>,
  responseId: string,
  index: number,
): NamedItem {
  const type = item.type ?? "message";
  const id = item.id ?? itemId(prefixes[type], responseId, `in${index}`);
  if (item.type === "function_call" || item.type === "function_call_output" || item.type === "reasoning") {
    return { ...item, id };
  }
  const { role, content } = item;
  // As a list of parts, which is how the items of a response are shown.
  const part = { type: role === "assistant" ? "output_text" : "input_text", text: content } as const;
  const parts = typeof content === "string" ? [{ ...part, text: content }] : content;
  return { ...item, type: "message", id, status: item.status ?? "completed", content: parts };
}
