// Owns the way from a request's input to the items it adds to the conversation: every item gets a name, and references become
// what they refer to. What the conversation goes on from comes before.
import { ServerError } from "../../runtime/errors.ts";
import { MAX_BODY_BYTES } from "../body.ts";
import { itemId, responseOfItem } from "./fold.ts";
import type { InputItem, NamedItem, WireItem } from "./input-items.ts";
import { parsedItems } from "./item-texts.ts";
import type { ResponseRequestBody } from "./request.ts";
import type { Responses } from "./responses.ts";

/** Responses one input may refer to items of. */
const MAX_REFERRED = 256;
/** Bytes that references may stand for: what a body may have that holds the items themselves. */
const MAX_REFERRED_BYTES = MAX_BODY_BYTES;

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
  return turns.flatMap((turn) => parsedItems<InputItem>(turn));
}

class ReferredItems {
  readonly #responses: Responses;
  readonly #known = new Set<string>();
  readonly #items = new Map<string, NamedItem>();
  readonly #sizes = new Map<string, number>();
  #bytes = 0;

  constructor(responses: Responses) {
    this.#responses = responses;
  }

  async find(id: string, at: number): Promise<NamedItem> {
    const item = this.#items.get(id) ?? (await this.#read(id, at));
    this.#count(this.#sizes.get(id) ?? 0, at);
    return item;
  }

  async #read(id: string, at: number): Promise<NamedItem> {
    const response = responseOfItem(id);
    if (response !== null) this.#refer(response, at);
    const text = response === null ? null : await this.#responses.item(response, id);
    if (text === null) {
      throw new ServerError("not_found", `Item with ID '${id}' not found: it is of no response that is kept`, {
        param: `input[${at}].id`,
      });
    }
    // Before they are read.
    if (this.#bytes + text.bytes > MAX_REFERRED_BYTES) throw tooLarge(at);
    const item = JSON.parse(Buffer.from(await text.read()).toString()) as NamedItem;
    this.#items.set(id, item);
    this.#sizes.set(id, text.bytes);
    return item;
  }

  #refer(response: string, at: number): void {
    this.#known.add(response);
    if (this.#known.size <= MAX_REFERRED) return;
    const text = `expected references to items of at most ${MAX_REFERRED} responses; send previous_response_id, or the items`;
    throw new ServerError("invalid_value", text, { param: `input[${at}]` });
  }

  #count(bytes: number, at: number): void {
    this.#bytes += bytes;
    if (this.#bytes > MAX_REFERRED_BYTES) throw tooLarge(at);
  }
}

function tooLarge(at: number): ServerError {
  const text = `expected references to items of at most ${MAX_REFERRED_BYTES} bytes in all, each counted as often as it is referred to`;
  return new ServerError("invalid_value", text, { param: `input[${at}]` });
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
