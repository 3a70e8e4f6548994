// Translation: converts a request body to data for the route (`facts`) and a request for the model (`asked`). It depends only
// on the body, and runs on the main thread or on a text worker. The text worker serialises (seals) prompt, grammar and tools,
// so that other threads can pass them on as bytes.
import type { z } from "zod";
import type { AgentOptions } from "../../actors/api/agent/agents.ts";
import { movedWith, sealContent } from "../../actors/api/sealed-content.ts";
import type { GenerateRequest } from "../../engines/generation.ts";
import type { TaskOutput } from "../../runtime/task/task.ts";
import { acceptedBody } from "./accepted-body.ts";
import type { OfferedTools } from "./agent/run-tools.ts";
import type { IgnoredField } from "./ignored.ts";
import type { Origin } from "./origin.ts";
import type { UnknownFields } from "./unknown-fields.ts";

/** Request for the model, without the fields that come from the exchange. */
export type AskedRequest = Omit<GenerateRequest, keyof Origin>;

/** Fields of all translations. A translation is plain data, so that it can be sent to another thread. */
export interface Translation {
  /** Field `model` of the request body. */
  readonly model: string | null | undefined;
  readonly ignored: readonly IgnoredField[];
}

/** Input of a text worker's translation task, in addition to the body. */
export interface TranslationInput {
  readonly parameters: unknown;
  readonly unknownFields: UnknownFields;
}

/** Translator of the request bodies of one route. */
export interface BodyTranslator<T extends Translation> {
  readonly name: string;
  /**
   * Translates a body. `value`: the parsed JSON, which may be changed. Throws a ServerError with the name of the invalid field.
   */
  translate(value: unknown, parameters: unknown, unknownFields: UnknownFields): T;
  /** Converts a translation to the output of a text worker task. */
  pack(translated: T): TaskOutput;
}

export interface AskedTranslation<Facts> extends Translation {
  readonly facts: Facts;
  readonly asked: AskedRequest;
}

/** Translation of a request that may use the agent loop. */
export interface RunTranslation<Facts> extends AskedTranslation<Facts> {
  /** Options of the agent loop; null if the request does not use the loop. */
  readonly agent: AgentOptions | null;
}

/** Creates the translator of a route from its body schema. */
export function askedTranslator<Schema extends z.ZodObject, Facts>(
  name: string,
  schema: Schema,
  factsOf: (body: z.output<Schema>) => Facts & { readonly model: Translation["model"] },
  askedOf: (body: z.output<Schema>) => AskedRequest,
): BodyTranslator<AskedTranslation<Facts>> {
  return runTranslator(name, schema, factsOf, (body) => ({ asked: askedOf(body), agent: null }));
}

/**
 * Creates the translator of a route whose requests may use the agent loop. The translator's parameter is OfferedTools or null.
 */
export function runTranslator<Schema extends z.ZodObject, Facts>(
  name: string,
  schema: Schema,
  factsOf: (body: z.output<Schema>) => Facts & { readonly model: Translation["model"] },
  runOf: (body: z.output<Schema>, offered: OfferedTools | null) => Pick<RunTranslation<Facts>, "asked" | "agent">,
): BodyTranslator<RunTranslation<Facts>> {
  return {
    name,
    translate(value, parameters, unknownFields) {
      const { body, ignored } = acceptedBody(schema, value, unknownFields);
      const facts = factsOf(body);
      return { model: facts.model, ignored, facts, ...runOf(body, parameters as OfferedTools | null) };
    },
    pack(translated) {
      const asked = sealed(translated.asked);
      const contents = (translated.agent?.inputFiles ?? []).flatMap((file) =>
        "content" in file ? [file.content] : [],
      );
      const transfer = [...movedWith(asked), ...contents.map(({ buffer }) => buffer as ArrayBuffer)];
      return { value: { ...translated, asked }, transfer };
    },
  };
}

/** Returns the request with prompt, grammar and tools in serialised (sealed) form. */
export function sealed(asked: AskedRequest): AskedRequest {
  const { prompt, grammar, tools } = asked;
  if (prompt.kind === "sealed") return asked;
  return { ...asked, prompt: sealContent({ prompt, grammar, tools }), grammar: null, tools: null };
}
