// Server items: output items for calls of tools that the server runs. Each call is one item; a shell call has a second item for
// its result.
import { builtInPrefix } from "../../../actors/tools/schemas.ts";
import { builtInKind, hasFailed, type ProgressEvent } from "../../shared/agent/progress-event.ts";
import { pagesOf, textArgument } from "../../shared/agent/web-results.ts";
import { containerPrefix } from "../../shared/fields/tools/tool-fields.ts";
import type { ResponseEvents } from "../fold/event-text.ts";
import type { ItemPlace } from "../fold/open-item.ts";
import type {
  CodeCallItem,
  McpCallItem,
  OutputItem,
  ShellCallItem,
  ShellOutputItem,
  WebCallItem,
} from "../fold/resource-schema.ts";
import { serverLabel } from "./input-items.ts";

type CallItem = CodeCallItem | ShellCallItem | McpCallItem | WebCallItem;

export class ServerItems {
  readonly #output: OutputItem[];
  readonly #events: ResponseEvents;
  readonly #includesSources: boolean;
  readonly #placeOf: (prefix: string) => ItemPlace;
  /** Item and output position of each running call, by call id. */
  readonly #running = new Map<string, { readonly item: CallItem; readonly index: number }>();
  #session = "";

  /**
   * `includesSources`: whether items of web searches list the found pages. `placeOf` returns the position and id of the next
   * item.
   */
  constructor(
    output: OutputItem[],
    events: ResponseEvents,
    includesSources: boolean,
    placeOf: (prefix: string) => ItemPlace,
  ) {
    this.#output = output;
    this.#events = events;
    this.#includesSources = includesSources;
    this.#placeOf = placeOf;
  }

  set session(id: string) {
    this.#session = id;
  }

  get container(): string {
    return containerPrefix + this.#session;
  }

  take(event: ProgressEvent): void {
    const { item, index } = this.#running.get(event.call.id) ?? this.#begin(event);
    if (event.phase === "calling") return;
    this.#running.delete(event.call.id);
    item.status = hasFailed(event) && item.type !== "shell_call" ? "failed" : "completed";
    if (item.type === "code_interpreter_call") this.#endCode(item, index, event);
    else if (item.type === "web_search_call") this.#endWeb(item, index, event);
    else if (item.type === "mcp_call") this.#endOther(item, index, event);
    this.#done(index, item);
    if (item.type === "shell_call") this.#addOutput(event);
  }

  /** Ends the items of running calls. Called when the response ends. */
  interrupt(): void {
    for (const { item, index } of this.#running.values()) {
      item.status = item.type === "web_search_call" ? "failed" : "incomplete";
      this.#done(index, item);
    }
    this.#running.clear();
  }

  #begin(event: ProgressEvent): { readonly item: CallItem; readonly index: number } {
    const { name, id, arguments: text } = event.call;
    const kind = builtInKind(event);
    const place = this.#placeOf(kind === null ? "mcp" : prefixes[kind]);
    const fields = argumentsOf(text);
    const common = { id: place.id, status: "in_progress" as const, agentic: this.#agentic(event, null) };
    let item: CallItem;
    if (kind === "code") {
      const code = typeof fields.code === "string" ? fields.code : "";
      item = { ...common, type: "code_interpreter_call", code, container_id: this.container, outputs: null };
    } else if (kind === "shell") {
      const commands = Array.isArray(fields.commands) ? fields.commands.map(String) : [];
      const action = {
        commands,
        timeout_ms: numberOf(fields.timeout_ms),
        max_output_length: numberOf(fields.max_output_length),
      };
      item = { ...common, type: "shell_call", call_id: id, action };
    } else if (kind !== null) {
      item = { ...common, type: "web_search_call", action: webAction(event) };
    } else {
      const own = name.startsWith(builtInPrefix);
      item = {
        ...common,
        type: "mcp_call",
        server_label: own ? serverLabel : (event.server ?? "tools"),
        name,
        arguments: text,
        output: null,
        error: null,
      };
    }
    this.#output.push(item);
    const { index } = place;
    this.#events.event("response.output_item.added", { output_index: index, item });
    if (item.type === "code_interpreter_call") this.#beginCode(item, index);
    else if (item.type === "web_search_call") this.#beginWeb(item, index);
    else if (item.type === "mcp_call") this.#beginOther(item, index);
    const running = { item, index };
    this.#running.set(id, running);
    return running;
  }

  #beginCode(item: CodeCallItem, index: number): void {
    const at = { item_id: item.id, output_index: index };
    this.#events.event("response.code_interpreter_call.in_progress", at);
    this.#events.event("response.code_interpreter_call_code.done", { ...at, code: item.code });
    this.#events.event("response.code_interpreter_call.interpreting", at);
  }

  #endCode(item: CodeCallItem, index: number, event: ProgressEvent): void {
    // A call that was not run has only the field `content`, which contains the reason.
    const { stdout, stderr, exception, result, content } = event.data;
    const logs = [stdout, result, stderr, exception, content].filter((text) => typeof text === "string" && text !== "");
    const images = event.record?.result_images_base64 ?? [];
    item.outputs = [
      ...(logs.length === 0 ? [] : [{ type: "logs" as const, logs: logs.join("\n") }]),
      ...images.map((image) => ({ type: "image" as const, url: `data:image/png;base64,${image}` })),
    ];
    item.agentic = this.#agentic(event, event.record?.result_content ?? "");
    this.#events.event("response.code_interpreter_call.completed", { item_id: item.id, output_index: index });
  }

  #beginWeb(item: WebCallItem, index: number): void {
    const at = { item_id: item.id, output_index: index };
    this.#events.event("response.web_search_call.in_progress", at);
    this.#events.event("response.web_search_call.searching", at);
  }

  #endWeb(item: WebCallItem, index: number, event: ProgressEvent): void {
    const pages = pagesOf(event);
    if (pages !== null && item.action.type === "search" && this.#includesSources) {
      item.action = { ...item.action, sources: pages.map(({ url }) => ({ type: "url", url })) };
    }
    item.agentic = this.#agentic(event, event.record?.result_content ?? "");
    this.#events.event("response.web_search_call.completed", { item_id: item.id, output_index: index });
  }

  #beginOther(item: McpCallItem, index: number): void {
    const at = { item_id: item.id, output_index: index };
    this.#events.event("response.mcp_call.in_progress", at);
    this.#events.event("response.mcp_call_arguments.delta", { ...at, delta: item.arguments });
    this.#events.event("response.mcp_call_arguments.done", { ...at, arguments: item.arguments });
  }

  #endOther(item: McpCallItem, index: number, event: ProgressEvent): void {
    item.output = event.record?.result_content ?? "";
    item.agentic = this.#agentic(event, item.output);
    const end = item.status === "failed" ? "failed" : "completed";
    this.#events.event(`response.mcp_call.${end}`, { item_id: item.id, output_index: index });
  }

  #addOutput(event: ProgressEvent): void {
    const { index, id } = this.#placeOf("sco");
    const item: ShellOutputItem = {
      id,
      type: "shell_call_output",
      status: "completed",
      call_id: event.call.id,
      output: outputsOf(event.data),
      max_output_length: numberOf(argumentsOf(event.call.arguments).max_output_length),
      agentic: this.#agentic(event, event.record?.result_content ?? ""),
    };
    this.#output.push(item);
    this.#events.event("response.output_item.added", { output_index: index, item });
    this.#done(index, item);
  }

  #done(index: number, item: OutputItem): void {
    this.#events.event("response.output_item.done", { output_index: index, item });
  }

  #agentic({ round, call }: ProgressEvent, result: string | null): CallItem["agentic"] {
    return {
      round,
      call_id: call.id,
      arguments: call.arguments,
      result_content: result,
      container_id: this.container,
    };
  }
}

/** Prefixes of item ids. Calls of all other tools are `mcp` items. */
const prefixes = { code: "ci", shell: "sc", search: "ws", page: "ws" } as const;

function webAction(event: ProgressEvent): WebCallItem["action"] {
  if (builtInKind(event) === "page") return { type: "open_page", url: textArgument(event, "url") };
  const query = textArgument(event, "query");
  return { type: "search", query, queries: [query] };
}

/** Returns the output of each command as the tool reported it, or one output for a call that was not run. */
function outputsOf(data: ProgressEvent["data"]): ShellOutputItem["output"] {
  if (Array.isArray(data.output)) return data.output as ShellOutputItem["output"];
  const stderr = typeof data.stderr === "string" ? data.stderr : typeof data.content === "string" ? data.content : "";
  const stdout = typeof data.stdout === "string" ? data.stdout : "";
  const exitCode = typeof data.exit_code === "number" ? data.exit_code : 1;
  const outcome =
    data.timed_out === true ? { type: "timeout" as const } : { type: "exit" as const, exit_code: exitCode };
  return [{ stdout, stderr, outcome }];
}

function argumentsOf(text: string): Readonly<Record<string, unknown>> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Readonly<Record<string, unknown>>) : {};
  } catch {
    return {};
  }
}

function numberOf(value: unknown): number | null {
  return typeof value === "number" ? value : null;
}
