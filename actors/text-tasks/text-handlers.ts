// Task handlers of a text worker: all processing of client texts, before and after generation. A worker runs one task at a time.
// If a task takes too long, its thread is terminated.
import { createHash } from "node:crypto";
import { deserialize } from "node:v8";
import { type ModelMetadata, parseModelMetadata } from "../../engines/files/gguf/metadata.ts";
import { type HeadBytes, readHeadBytes } from "../../engines/files/gguf/reader.ts";
import type { GenerateRequest, OpenRequest } from "../../engines/generation.ts";
import type { PreparedMedia } from "../../engines/media/media-tokens.ts";
import { loadTemplateOverride } from "../../engines/text/template/template-source.ts";
import { tokenTextTable } from "../../engines/text/tokenizer/token-texts.ts";
import { createVocabulary } from "../../engines/text/tokenizer/vocabulary.ts";
import type { TaskHandlers, TaskOutput } from "../../runtime/task/task.ts";
import type { BodyToTranslate, BodyTranslators, TranslatedBody } from "../api/body-translators.ts";
import type { ConvertedTokens, EmbedInputs, ModelFileFacts, TokenSource } from "../api/inference.ts";
import { changedContent, openContent } from "../api/sealed-content.ts";
import type { ModelFiles } from "../messages.ts";
import { ChatTemplates } from "./chat-templates.ts";
import { convertedTokens } from "./convert-tokens.ts";
import { checkOutput, type OutputToCheck, preparePrompt } from "./prepare.ts";
import { TextModel, type TextSource } from "./text-model.ts";
import type { TextPhase } from "./text-phase.ts";

export interface TokenizedInputs {
  readonly prompts: readonly Int32Array[];
  /** Ids of tokens, such as punctuation, that get no vector in the output, if the model computes a vector per token. */
  readonly skipped: readonly number[];
}

/** Input and output of each kind of task. */
export interface TextTaskTypes {
  /** Reads a model's files. */
  readonly read: {
    readonly input: {
      readonly path: string;
      readonly chatTemplate: string | null;
      readonly jinjaExplicit: string | null;
    };
    readonly output: ModelFiles;
  };
  readonly prepare: {
    readonly input: {
      readonly key: string;
      readonly request: GenerateRequest;
      readonly media: readonly PreparedMedia[];
    };
    readonly output: ReturnType<typeof preparePrompt>;
  };
  readonly count: {
    readonly input: {
      readonly key: string;
      readonly request: GenerateRequest;
      readonly media: readonly PreparedMedia[];
    };
    readonly output: number;
  };
  /** Tokenizes the inputs of an embedding or rerank request. */
  readonly tokenize: {
    readonly input: {
      readonly key: string;
      readonly inputs: EmbedInputs;
      readonly truncates: boolean;
      /** Query against which each input is scored; undefined = the inputs are embedded. */
      readonly query: string | undefined;
      /**
       * Input type of the texts, which selects a prompt prefix or marker; undefined = the default, or the type that follows
       * from `role`.
       */
      readonly inputType: string | undefined;
      /** Role of the texts in a comparison of vectors; undefined = no comparison, the texts are only embedded. */
      readonly role: "query" | "document" | undefined;
    };
    readonly output: TokenizedInputs;
  };
  /** Converts text to tokens, or tokens to text. */
  readonly convert: {
    readonly input: { readonly key: string; readonly source: TokenSource; readonly wantsPieces: boolean };
    readonly output: ConvertedTokens;
  };
  readonly check: {
    readonly input: { readonly asked: Uint8Array; readonly text: string; readonly call: string | null };
    readonly output: string | null;
  };
  readonly translate: { readonly input: BodyToTranslate; readonly output: TranslatedBody };
}

export type TextTaskKind = keyof TextTaskTypes;

type Handlers = {
  readonly [K in TextTaskKind]: (
    input: TextTaskTypes[K]["input"],
    enter: (phase: TextPhase) => void,
  ) => TaskOutput | Promise<TaskOutput>;
};

/** Idle time in ms before a worker imports the translators of request bodies. The import takes 0.1 s, and most tasks do not need them. */
const restMs = 500;

/** Returns the handlers of all tasks. `loadTranslators` imports the translators of request bodies at its first call. */
export function textHandlers(loadTranslators: () => Promise<BodyTranslators>): TaskHandlers {
  const models = new Map<string, TextModel>();
  let hasRested = false;
  const timer = setTimeout(() => {
    hasRested = true;
    // The error is ignored here, because every task that needs the translators reports it.
    loadTranslators().catch(() => {});
  }, restMs).unref();
  const awaitRest = (): void => {
    if (!hasRested) timer.refresh();
  };

  function modelOf(key: string): TextModel {
    const model = models.get(key);
    if (model === undefined) throw new Error(`no text model "${key}"`);
    return model;
  }

  function opened(request: GenerateRequest): OpenRequest {
    const { prompt, grammar, tools, changes } = request;
    const content = prompt.kind === "sealed" ? openContent(prompt) : { prompt, grammar, tools };
    return { ...request, ...(changes === undefined ? content : changedContent(content, changes)) };
  }

  const handlers: Handlers = {
    async read({ path, chatTemplate, jinjaExplicit }, enter) {
      enter("model");
      const named = jinjaExplicit ?? chatTemplate;
      const key = jinjaExplicit === null ? "chat_template" : "jinja_explicit";
      const template = named === null ? null : await loadTemplateOverride(named, key);
      const head = await readHeadBytes(path);
      const metadata = parseModelMetadata(head);
      const vocabulary = createVocabulary(metadata.tokenizer);
      enter("template");
      const templates = ChatTemplates.open(template, metadata, vocabulary);
      const files: ModelFiles = {
        head,
        template,
        templateCapabilities: templates.capabilities,
        tokenTexts: tokenTextTable(vocabulary),
        facts: fileFacts(head, metadata, templates),
      };
      return { value: files };
    },
    prepare({ key, request, media }, enter) {
      enter("messages");
      const prepared = preparePrompt(opened(request), modelOf(key), enter, media);
      return { value: prepared, transfer: [prepared.tokens.buffer as ArrayBuffer] };
    },
    count({ key, request, media }, enter) {
      return { value: modelOf(key).prompt(opened(request), enter, media).prompt.length };
    },
    tokenize({ key, inputs, truncates, query, role, ...asked }, enter) {
      enter("input");
      const model = modelOf(key);
      const inputType = asked.inputType ?? (role && model.typeOf(role));
      const field = role === undefined ? "input" : { query: "query", document: "documents" }[role];
      const tokensOf = (input: string | Int32Array) =>
        query === undefined || typeof input !== "string"
          ? model.inputTokens(input, { truncates, inputType, field })
          : model.pairTokens(query, input);
      const skipped = inputs.kind === "texts" ? model.skippedTokens(inputType) : [];
      const tokenized: TokenizedInputs = { prompts: unpacked(inputs).map(tokensOf), skipped };
      return { value: tokenized };
    },
    convert({ key, source, wantsPieces }, enter) {
      enter("input");
      return { value: convertedTokens(modelOf(key), source, wantsPieces) };
    },
    check({ asked, text, call }, enter) {
      enter("check");
      return { value: checkOutput({ asked: deserialize(asked) as OutputToCheck["asked"], text, call }) };
    },
    async translate({ protocol, body, parameters }, enter) {
      enter("body");
      const translators = await loadTranslators();
      const { value, transfer = [] } = translators.translate(protocol, body, parameters);
      return { value: { value, movable: transfer }, transfer };
    },
  };

  return {
    share(key, value) {
      models.set(key, TextModel.open(value as TextSource));
      awaitRest();
      return null;
    },
    unshare: (key) => void models.delete(key),
    run: (kind, input, enter) => {
      awaitRest();
      return handlers[kind as TextTaskKind](input as never, enter);
    },
  };
}

function fileFacts(
  head: HeadBytes,
  { architecture, weightType }: ModelMetadata,
  { capabilities, reasons }: ChatTemplates,
): ModelFileFacts {
  const headDigest = createHash("sha256").update(new Uint8Array(head.bytes)).digest("hex");
  return { architecture, weightType, headDigest, chats: capabilities.usual !== null, reasons };
}

function unpacked({ kind, values, ends }: EmbedInputs): readonly (string | Int32Array)[] {
  return Array.from(ends, (end, i) => {
    const start = i === 0 ? 0 : (ends[i - 1] as number);
    return kind === "texts" ? Buffer.from(values.subarray(start, end)).toString("utf8") : values.subarray(start, end);
  });
}
