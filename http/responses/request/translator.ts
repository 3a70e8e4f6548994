// Translators from the body of POST /v1/responses to the response's settings, the input items, and a generation request.
import type { z } from "zod";
import type { AgentOptions, InputFile, SkillReference } from "../../../actors/api/agent/agents.ts";
import { movedWith } from "../../../actors/api/sealed-content.ts";
import type { ItemTexts } from "../../../actors/api/stored-responses.ts";
import type { ToolUse } from "../../../engines/generation.ts";
import type { TaskOutput } from "../../../runtime/task/task.ts";
import { acceptedBody } from "../../shared/accepted-body.ts";
import { type AgentFields, agentOptions, digestsOf } from "../../shared/agent/request-fields.ts";
import { type OfferedTools, type RunTools, runTools, type ToolNeeds } from "../../shared/agent/run-tools.ts";
import type { adapterField } from "../../shared/fields/adapter-field.ts";
import { sentGrammar } from "../../shared/fields/grammar-fields.ts";
import { namedServer } from "../../shared/fields/tools/mcp-tool.ts";
import { filesOfTool, skillsOfTool } from "../../shared/fields/tools/tool-fields.ts";
import { plainWebUse, type WebUse, webUseOfTool } from "../../shared/fields/tools/web-search.ts";
import type { IgnoredField } from "../../shared/ignored.ts";
import { type AskedTranslation, type BodyTranslator, sealed } from "../../shared/translation.ts";
import { settingsText } from "../fold/resource.ts";
import { inputStart } from "../stored/text-start.ts";
import { type Conversation, conversation, wholeConversation } from "./conversation.ts";
import { type InputReference, inputItems, isReference } from "./input.ts";
import type { NamedItem } from "./input-items.ts";
import { itemTexts } from "./item-texts.ts";
import {
  askedRequest,
  compactRequestSchema,
  continuesInput,
  featuresOf,
  type ResponseRequestBody,
  responseMessageSchema,
  responseRequestSchema,
  sentAgentFields,
} from "./request.ts";
import { summaryConversation } from "./summary.ts";
import {
  choiceOf,
  type FunctionName,
  functionNames,
  mcpToolsOf,
  namespacedNames,
  requestedTools,
  serverToolsOf,
  webToolOf,
} from "./tools.ts";

/**
 * Functions that build the messages of a request from a complete conversation: the conversation itself, or a request to
 * summarise it.
 */
export const messagesOf = { conversation: wholeConversation, summary: summaryConversation };

export type ConversationForm = keyof typeof messagesOf;

export interface ResponseFacts {
  readonly model: string | null | undefined;
  readonly adapter: z.output<typeof adapterField>;
  readonly previousId: string | null;
  /** Beginning of the user's last message in `input`; null if there is no such message. */
  readonly inputStart: string | null;
  readonly isStored: boolean;
  readonly isBackground: boolean;
  readonly isStreamed: boolean;
  /** Request settings that the response repeats, as JSON text in UTF-8. */
  readonly settings: Uint8Array;
  readonly namespacedNames: ReadonlyMap<string, FunctionName>;
  /** Whether items of web searches list the pages found. */
  readonly includesSources: boolean;
}

export interface ResponseParameters {
  /** Id of the new response, which becomes part of the ids of its items. */
  readonly responseId: string;
  /** Tools of the server; null: the server has no agent loop. */
  readonly offered: OfferedTools | null;
}

/** Data about a conversation for the agent loop: files, earlier server calls, and the digest of each message. */
export type ConversationFacts = Pick<Conversation, "files" | "earlierCalls"> & {
  readonly digests: readonly string[];
};

/** Options of the agent loop that depend only on the request body. The other options come from ConversationFacts. */
export interface AgentPart {
  readonly fields: AgentFields;
  /** Tools of the agent run; null if the body does not need the loop. Files in the conversation may still need it. */
  readonly tools: RunTools | null;
  /** Tools instead of `tools` if stored items have files; null: `tools`. */
  readonly fileTools: FileTools | null;
  readonly web: WebUse;
  readonly skills: readonly SkillReference[];
  /** Ids of the files that the tool definitions list. */
  readonly fileIds: readonly string[];
  readonly isStreamed: boolean;
  readonly maxCalls: number | null;
}

interface FileTools {
  readonly run: RunTools;
  readonly use: ToolUse | null;
}

export interface ResponseTranslation extends AskedTranslation<ResponseFacts> {
  /** Options of the agent loop in the body; null: the server has no agent loop. */
  readonly agent: AgentPart | null;
  /** Data about the complete conversation if `isWhole`, otherwise only about the instructions. */
  readonly conversation: ConversationFacts;
  readonly input: readonly (ItemTexts | InputReference)[];
  /**
   * Whether `asked` contains the complete conversation. If false, it contains only the instructions, and stored items must be
   * added.
   */
  readonly isWhole: boolean;
  readonly form: ConversationForm;
}

/** Translates a request body. The argument `parameters` of `translate` must be ResponseParameters. */
export const responseTranslator: BodyTranslator<ResponseTranslation> = {
  name: "responses",
  translate(value, parameters, unknownFields) {
    const { body, ignored } = acceptedBody(responseRequestSchema, value, unknownFields);
    return translated(body, ignored, parameters as ResponseParameters);
  },
  pack,
};

/** Translates a message that arrived on a WebSocket connection. */
export const messageTranslator: BodyTranslator<ResponseTranslation> = {
  name: "response.create",
  translate(value, parameters, unknownFields) {
    const { body, ignored } = acceptedBody(responseMessageSchema, value, unknownFields);
    return translated({ ...body, stream: true }, ignored, parameters as ResponseParameters);
  },
  pack,
};

/** Translates a request for a summary of a conversation. The summary is generated without reasoning and without randomness. */
export const compactTranslator: BodyTranslator<ResponseTranslation> = {
  name: "responses.compact",
  translate(value, parameters, unknownFields) {
    const { body, ignored } = acceptedBody(compactRequestSchema, value, unknownFields);
    const summary = { ...body, temperature: 0, reasoning: { effort: "off" } } as const;
    return translated(summary, ignored, parameters as ResponseParameters, "summary");
  },
  pack,
};

function translated(
  body: ResponseRequestBody,
  ignored: readonly IgnoredField[],
  { responseId, offered }: ResponseParameters,
  form: ConversationForm = "conversation",
): ResponseTranslation {
  const items = inputItems(body.input, responseId);
  const previousId = body.previous_response_id ?? null;
  const instructions = body.instructions ?? null;
  const own = items.flatMap((item) => (isReference(item) ? [] : [item]));
  const isWhole = previousId === null && own.length === items.length;
  const facts: ResponseFacts = {
    model: body.model,
    adapter: body.adapter,
    previousId,
    inputStart: inputStart(own),
    isStored: body.store ?? true,
    isBackground: body.background ?? false,
    isStreamed: body.stream ?? false,
    settings: settingsText(body),
    namespacedNames: namespacedNames(body),
    includesSources: body.include?.includes("web_search_call.action.sources") ?? false,
  };
  const composed = isWhole ? messagesOf[form](instructions, own) : conversation(instructions, []);
  // A summary contains no files. The files of stored items are not known yet.
  const hasFiles = form === "conversation" && own.some(hasFile);
  const agent = agentPart(body, hasFiles, !isWhole && form === "conversation", offered);
  const serverTools = agent?.tools?.specs ?? [];
  const continues = form === "conversation" && continuesInput(body);
  return {
    model: body.model,
    ignored,
    facts,
    agent,
    conversation: conversationFacts(composed),
    asked: {
      ...askedRequest(body, composed.messages, continues, serverTools),
      ...(composed.media && { media: composed.media }),
    },
    input: inTexts(items),
    isWhole,
    form,
  };
}

function hasFile(item: NamedItem): boolean {
  return "role" in item && typeof item.content !== "string" && item.content.some(({ type }) => type === "input_file");
}

export function conversationFacts({ messages, files, earlierCalls }: Conversation): ConversationFacts {
  return { digests: digestsOf(messages), files, earlierCalls };
}

function agentPart(
  body: ResponseRequestBody,
  hasFiles: boolean,
  mayGetFiles: boolean,
  offered: OfferedTools | null,
): AgentPart | null {
  const fileIds = serverToolsOf(body).flatMap(filesOfTool);
  const fields = sentAgentFields(body);
  const webTool = webToolOf(body);
  const web = webTool === null ? plainWebUse : webUseOfTool(webTool);
  const skills = serverToolsOf(body).flatMap(skillsOfTool);
  const needs = {
    named: featuresOf(body),
    fields,
    hasFiles: hasFiles || fileIds.length > 0,
    functions: functionNames(body),
    servers: mcpToolsOf(body).map(namedServer),
    skills,
    web,
    choice: choiceOf(body),
    hasRoom: sentGrammar(body) === null && !continuesInput(body),
  };
  const tools = runTools(needs, offered);
  if (offered === null) return null;
  const fileTools = mayGetFiles && (tools?.isPlain ?? true) ? toolsForFiles(body, needs, offered) : null;
  const isStreamed = body.stream ?? false;
  return { fields, tools, fileTools, web, skills, fileIds, isStreamed, maxCalls: body.max_tool_calls ?? null };
}

/**
 * Returns the tools of a request that asks for none, for the case that stored items have files; null if the model cannot call them:
 * the output has a grammar, or a function has the name of one.
 */
function toolsForFiles(body: ResponseRequestBody, needs: ToolNeeds, offered: OfferedTools): FileTools | null {
  const run = runTools({ ...needs, hasFiles: true }, offered);
  if (run === null || sentGrammar(body) !== null) return null;
  if (run.specs.some(({ name }) => needs.functions.includes(name))) return null;
  return { run, use: requestedTools(body, run.specs) };
}

/** Returns the options of the agent loop for a complete conversation; null if the request does not use the loop. */
export function agentOf(
  agent: AgentPart | null,
  { digests, files, earlierCalls }: ConversationFacts,
): AgentOptions | null {
  if (agent === null) return null;
  const { fields, fileTools, web, skills, fileIds, isStreamed, maxCalls } = agent;
  const tools = files.length > 0 && fileTools !== null ? fileTools.run : agent.tools;
  if (tools === null && files.length === 0) return null;
  const named: InputFile[] = fileIds.map((id) => ({ message: digests.length - 1, id }));
  const inputFiles = [...files, ...named];
  const isPlain = tools?.isPlain === true && inputFiles.length === 0;
  const offered = { groups: tools?.groups ?? [], serverTools: tools?.serverTools ?? [], isPlain };
  return agentOptions(fields, { ...offered, web, skills, inputFiles, digests, earlierCalls, isStreamed, maxCalls });
}

function pack(translated: ResponseTranslation): TaskOutput {
  const asked = sealed(translated.asked);
  const settings = translated.facts.settings.buffer as ArrayBuffer;
  const texts = translated.input.flatMap((part) => (isReference(part) ? [] : [part.texts.buffer, part.ends.buffer]));
  return { value: { ...translated, asked }, transfer: [...movedWith(asked), settings, ...(texts as ArrayBuffer[])] };
}

/** Joins consecutive items into one ItemTexts. References to stored items stay separate. */
function inTexts(items: readonly (NamedItem | InputReference)[]): readonly (ItemTexts | InputReference)[] {
  const parts: (ItemTexts | InputReference)[] = [];
  let own: NamedItem[] = [];
  for (const item of items) {
    if (!isReference(item)) {
      own.push(item);
      continue;
    }
    if (own.length > 0) parts.push(itemTexts(own));
    parts.push(item);
    own = [];
  }
  if (own.length > 0) parts.push(itemTexts(own));
  return parts;
}
