// Message fold: turns the events of a generation into a complete message, with its content blocks in the order of generation.
// Used for messages that are not streamed.
import type { GenerateEvent } from "../../engines/generation.ts";
import { fromErrorRecord, ServerError } from "../../runtime/errors.ts";
import { type ContentBlock, type Ending, type MessageHead, message, wireStop } from "./response.ts";

/** Builds the response body. Throws if the generation ends with an error. */
export async function collectMessage(
  head: MessageHead,
  events: AsyncIterable<readonly GenerateEvent[]>,
): Promise<object> {
  const blocks = new Blocks();
  const ending: Ending = { reason: "stop", stopString: null, refusal: null };
  for await (const batch of events) {
    for (const event of batch) {
      switch (event.type) {
        case "begin":
        case "prompt":
          break; // the final usage includes the prompt tokens
        case "reasoning":
          blocks.think(event.text);
          break;
        case "text":
          blocks.say(event.text);
          break;
        case "tool_call":
          blocks.openCall(event.id, event.name);
          break;
        case "tool_arguments":
          blocks.input(event.text);
          break;
        case "tool_call_end":
          blocks.closeCall();
          break;
        case "tool_call_failed":
          blocks.dropCall(event.text);
          break;
        case "refusal":
          ending.refusal = event.reason;
          break;
        case "finish":
          ending.reason = event.reason;
          ending.stopString = event.stopString;
          break;
        case "done":
          return message(head, blocks.content, wireStop(ending), event.usage);
        case "error":
          throw fromErrorRecord(event.error);
        default:
          event satisfies never;
      }
    }
  }
  throw new ServerError("peer_gone", "the generation ended before it was done; send the request again");
}

class Blocks {
  readonly content: ContentBlock[] = [];
  /** The tool call in progress; null: none. */
  #call: { readonly id: string; readonly name: string; input: string } | null = null;

  think(thinking: string): void {
    const last = this.content.at(-1);
    if (last?.type === "thinking") last.thinking += thinking;
    else this.content.push({ type: "thinking", thinking, signature: "" });
  }

  say(text: string): void {
    if (text === "") return; // the event has only logprobs
    const last = this.content.at(-1);
    if (last?.type === "text") last.text += text;
    else this.content.push({ type: "text", text });
  }

  openCall(id: string, name: string): void {
    this.#call = { id, name, input: "" };
  }

  input(text: string): void {
    if (this.#call) this.#call.input += text;
  }

  closeCall(): void {
    if (!this.#call) return;
    const { id, name, input } = this.#call;
    this.content.push({ type: "tool_use", id, name, input: JSON.parse(input), caller: { type: "direct" } });
    this.#call = null;
  }

  /** Ends an invalid tool call: its text becomes text of the message. */
  dropCall(text: string): void {
    this.#call = null;
    this.say(text);
  }
}
