// Conversation of a messages request: converts it to chat messages. Consecutive messages of one role are merged, every tool
// result becomes a separate message, and every tool call needs a result. Throws a ServerError with the path of the invalid
// message.
import type { EarlierCalls, InputFile } from "../../../actors/api/agent/agents.ts";
import { checkedFileName } from "../../../actors/files/file-name.ts";
import type { ChatMessage, MessageMedia, RequestMedia, ToolCall } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { inputFile } from "../../shared/agent/file-part.ts";
import { type ContentPart, contentOf, MediaCollector } from "../../shared/fields/media-part.ts";
import { resultsInCallOrder } from "../../shared/fields/tools/result-order.ts";
import type {
  AssistantContent,
  FileBlock,
  ImageBlock,
  ToolResult,
  UserContent,
  WireMessage,
  WireText,
} from "./content.ts";
import { hasOpaqueCall, type ServerCall, serverCalls } from "./server-calls.ts";

/** Text before a tool result with `is_error`, because chat templates have no error field. */
const FAILED = "The tool failed: ";

type Block = Exclude<AssistantContent, string>[number];

interface Draft {
  readonly role: "system" | "user" | "assistant" | "tool";
  content: string;
  reasoning: string;
  readonly toolCalls: ToolCall[];
  media?: MessageMedia[];
  readonly name?: string;
  readonly toolCallId?: string;
}

/**
 * Conversation as chat messages, with its files and the names of the tools with `defer_loading` that its tool results load.
 */
export interface Conversation {
  readonly messages: readonly ChatMessage[];
  readonly files: readonly InputFile[];
  readonly loadedTools: ReadonlySet<string>;
  readonly earlierCalls: EarlierCalls;
  /** Images in the messages; undefined if there are none. */
  readonly media: readonly RequestMedia[] | undefined;
}

export function conversation(system: WireText | null | undefined, messages: readonly WireMessage[]): Conversation {
  const answers = messages.flatMap(({ role, content }) =>
    role === "assistant" && typeof content !== "string" ? [content] : [],
  );
  const drafts = new Drafts(!answers.some(hasOpaqueCall));
  const told = joined(system ?? "");
  if (told !== "") drafts.say("system", told, "system");
  for (const [i, message] of messages.entries()) {
    const at = `messages[${i}]`;
    if (message.role === "assistant") drafts.answer(message.content, at);
    else if (message.role === "system") drafts.say("system", joined(message.content), at);
    else drafts.ask(message.content, at);
  }
  const { files, loadedTools, callIds: ids, session, media } = drafts;
  const ordered = resultsInCallOrder(drafts.finish());
  return { messages: ordered, files, loadedTools, earlierCalls: { ids, session }, media: media.all };
}

class Drafts {
  readonly #takesServerCalls: boolean;
  readonly #drafts: Draft[] = [];
  readonly files: InputFile[] = [];
  readonly media = new MediaCollector();
  readonly loadedTools = new Set<string>();
  /** Ids of all tool calls that the server ran. */
  readonly callIds: string[] = [];
  /** Session of the last server call that names a session; null if no call does. */
  session: string | null = null;
  /** Server calls of the last assistant message. Their results are added after that message. */
  #serverCalls: ServerCall[] = [];
  /** Names of the tool calls that still need a result, by call id. Only the last assistant message can have such calls. */
  readonly #open = new Map<string, string>();

  /**
   * `takesServerCalls`: whether tool calls that the server ran become messages. If false, the stored session supplies these
   * calls.
   */
  constructor(takesServerCalls: boolean) {
    this.#takesServerCalls = takesServerCalls;
  }

  /** Adds text of the user or of the system prompt. */
  say(role: "user" | "system", text: string, at: string): void {
    this.#requireResults(at);
    const last = this.#drafts.at(-1);
    if (last?.role === role) last.content += last.content === "" ? text : `\n${text}`;
    else this.#drafts.push({ role, content: text, reasoning: "", toolCalls: [] });
  }

  /** Adds a user message: tool results, texts, images and files. */
  ask(content: UserContent, at: string): void {
    if (typeof content === "string") {
      this.say("user", content, `${at}.content`);
      return;
    }
    // Tool results come first, wherever they are in the message, because models expect them directly after their calls.
    for (const [i, block] of content.entries()) {
      if (block.type === "tool_result") this.#take(block, `${at}.content[${i}]`);
    }
    for (const [i, block] of content.entries()) {
      if (block.type === "text") this.say("user", block.text, `${at}.content[${i}]`);
      else if (block.type === "image") this.#show(block, `${at}.content[${i}]`);
      else if (block.type !== "tool_result") this.#attach(block, `${at}.content[${i}]`);
    }
  }

  /** Adds an image to the end of the last user message. If the last message is not a user message, adds an empty one first. */
  #show(block: ImageBlock, at: string): void {
    if (this.#drafts.at(-1)?.role !== "user") this.say("user", "", at);
    const draft = this.#drafts.at(-1) as Draft;
    draft.media ??= [];
    draft.media.push({ at: draft.content.length, key: this.#image(block, at) });
  }

  #image({ source }: ImageBlock, at: string): string {
    if (source.type === "base64") return this.media.addBase64(source.data, `${at}.source.data`);
    if (source.type === "url") return this.media.addUrl(source.url, `${at}.source.url`);
    return this.media.addFile(source.file_id, `${at}.source.file_id`);
  }

  /** Adds a file to the last user message. If the last message is not a user message, adds an empty one first. */
  #attach(block: FileBlock, at: string): void {
    if (this.#drafts.at(-1)?.role !== "user") this.say("user", "", at);
    this.files.push(fileOf(block, this.#drafts.length - 1, at));
  }

  answer(content: AssistantContent, at: string): void {
    if (this.#drafts.at(-1)?.role !== "assistant") this.#requireResults(at);
    const blocks = typeof content === "string" ? [{ type: "text" as const, text: content }] : content;
    const calls = this.#takesServerCalls ? serverCalls(blocks) : new Map<string, ServerCall>();
    let draft = this.#assistant();
    for (const block of blocks) {
      const call = "id" in block && block.type !== "tool_use" ? calls.get(String(block.id)) : undefined;
      if (call !== undefined) {
        draft = this.#callServer(call);
      } else if (block.type === "text" || block.type === "thinking" || block.type === "tool_use") {
        // Text and thinking after server calls (tool calls that the server ran) begin the next tool round. A call of a
        // client's tool belongs to the same round as the server calls before it.
        if (block.type !== "tool_use" && this.#serverCalls.length > 0) draft = this.#nextRound();
        this.#add(draft, block);
      }
    }
    this.#addResults();
  }

  #add(draft: Draft, block: Extract<Block, { readonly type: "text" | "thinking" | "tool_use" }>): void {
    // The texts are joined without a separator, because the model generated these blocks as one text.
    if (block.type === "text") draft.content += block.text;
    else if (block.type === "thinking") draft.reasoning += block.thinking;
    else {
      draft.toolCalls.push({ id: block.id, name: block.name, arguments: JSON.stringify(block.input) });
      this.#open.set(block.id, block.name);
    }
  }

  /** Returns the last message if it is an assistant message, else a new assistant message. */
  #assistant(): Draft {
    const last = this.#drafts.at(-1);
    if (last?.role === "assistant") return last;
    const draft: Draft = { role: "assistant", content: "", reasoning: "", toolCalls: [] };
    this.#drafts.push(draft);
    return draft;
  }

  /** Adds a call that the server ran to the assistant message of its round. Returns this message. */
  #callServer(call: ServerCall): Draft {
    const isNewRound = this.#serverCalls.some(({ round }) => round !== call.round);
    const draft = isNewRound ? this.#nextRound() : this.#assistant();
    draft.toolCalls.push({ id: call.id, name: call.name, arguments: call.arguments });
    this.#serverCalls.push(call);
    this.callIds.push(call.id);
    this.session = call.session ?? this.session;
    return draft;
  }

  /** Ends the current round of server calls, and returns the assistant message of the next round. */
  #nextRound(): Draft {
    this.#addResults();
    return this.#assistant();
  }

  #addResults(): void {
    for (const { result: content, name, id: toolCallId } of this.#serverCalls) {
      this.#drafts.push({ role: "tool", content, reasoning: "", toolCalls: [], name, toolCallId });
    }
    this.#serverCalls = [];
  }

  finish(): ChatMessage[] {
    const end = "messages";
    if (this.#open.size > 0 && this.#drafts.at(-1)?.role === "assistant") {
      const problem =
        "expected the results of its calls in a user message at the end: a message with calls cannot be continued";
      throw invalid("unsupported", end, problem);
    }
    this.#requireResults(end);
    return this.#drafts.map(({ reasoning, toolCalls, ...message }) => ({
      ...message,
      ...(reasoning === "" ? {} : { reasoning }),
      ...(toolCalls.length === 0 ? {} : { toolCalls }),
    }));
  }

  #take({ tool_use_id: id, content, is_error }: ToolResult, at: string): void {
    const name = this.#open.get(id);
    if (name === undefined) {
      const waiting = this.#open.size === 0 ? "none is" : `${[...this.#open.keys()].slice(0, 8).join(", ")} are`;
      const message = `expected the id of a tool_use of the preceding assistant message (${waiting} waiting), got "${id}"`;
      throw invalid("invalid_value", `${at}.tool_use_id`, message);
    }
    this.#open.delete(id);
    const failed = is_error === true ? FAILED : "";
    const result = this.#result(content ?? "", `${at}.content`);
    const media = result.media?.map((place) => ({ ...place, at: place.at + failed.length }));
    const told = { role: "tool", content: failed + result.content, reasoning: "", name } as const;
    this.#drafts.push({ ...told, toolCalls: [], toolCallId: id, ...(media && { media }) });
  }

  #result(content: NonNullable<ToolResult["content"]>, at: string): Pick<ChatMessage, "content" | "media"> {
    if (typeof content === "string") return { content };
    const parts = content.map((block, i): ContentPart => {
      if (block.type === "image") return { media: this.#image(block, `${at}[${i}]`) };
      return { text: block.type === "text" ? block.text : this.#load(block.tool_name) };
    });
    return contentOf(parts, "\n");
  }

  #load(tool: string): string {
    this.loadedTools.add(tool);
    return `The tool ${tool} can be called now.`;
  }

  #requireResults(at: string): void {
    for (const id of this.#open.keys()) {
      const message = `expected a tool_result for tool_use "${id}" first: results directly follow the message with the calls`;
      throw invalid("invalid_value", at, message);
    }
  }
}

function fileOf(block: FileBlock, message: number, at: string): InputFile {
  if (block.type === "container_upload") return { message, id: block.file_id };
  const { source, title } = block;
  if (source.type === "file") return { message, id: source.file_id };
  if (source.type === "text") {
    return { message, name: nameOf(title, "document.txt"), content: new TextEncoder().encode(source.data) };
  }
  const filename = nameOf(title, source.media_type === "application/pdf" ? "document.pdf" : "document");
  return inputFile({ filename, file_data: source.data }, message, `${at}.source.data`);
}

function nameOf(title: string | null | undefined, usual: string): string {
  return checkedFileName(title ?? usual, false);
}

function joined(content: WireText): string {
  return typeof content === "string" ? content : content.map(({ text }) => text).join("\n");
}

function invalid(code: "invalid_value" | "unsupported", param: string, message: string): ServerError {
  return new ServerError(code, `${param}: ${message}`, { param });
}
