// Translation: converts a request body to data for the route (`facts`) and a request for the model (`asked`). It is a
// pure function of the body and runs on the main thread or on a text worker. The text worker serialises (seals) the
// prompt, the grammar and the tools, so that threads can pass them on as bytes.
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

/** Request for the model without the fields that come from its exchange. */
export type AskedRequest = Omit<GenerateRequest, keyof Origin>;

/** Fields that all translations have. A translation is plain data, so that it can be sent to another thread. */
export interface Translation {
  /** Field `model` of the body. */
  readonly model: string | null | undefined;
  readonly ignored: readonly IgnoredField[];
}

/** Input that a text worker needs to translate a body, in addition to the body. */
export interface TranslationInput {
  readonly parameters: unknown;
  readonly unknownFields: UnknownFields;
}

/** Body translator of one route. */
export interface BodyTranslator<T extends Translation> {
  readonly name: string;
  /** Translates a body; `value` is the parsed JSON, and may be changed. Throws a ServerError that names the invalid field. */
  translate(value: unknown, parameters: unknown, unknownFields: UnknownFields): T;
  /** Converts the translation to the output of a text worker's task. */
  pack(translated: T): TaskOutput;
}

export interface AskedTranslation<Facts> extends Translation {
  readonly facts: Facts;
  readonly asked: AskedRequest;
}

/** Translation of a request that may use the agent loop. */
export interface RunTranslation<Facts> extends AskedTranslation<Facts> {
  /** Options of the agent loop; null: the request does not use it. */
  readonly agent: AgentOptions | null;
}

/** Creates the translator of a route with this body schema. */
export function askedTranslator<Schema extends z.ZodObject, Facts>(
  name: string,
  schema: Schema,
  factsOf: (body: z.output<Schema>) => Facts & { readonly model: Translation["model"] },
  askedOf: (body: z.output<Schema>) => AskedRequest,
): BodyTranslator<AskedTranslation<Facts>> {
  return runTranslator(name, schema, factsOf, (body) => ({ asked: askedOf(body), agent: null }));
}

/** Creates the translator of a route whose requests may use the agent loop. Its parameter is OfferedTools or null. */
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

/** Returns the request with its prompt, grammar and tools serialised (sealed). */
export function sealed(asked: AskedRequest): AskedRequest {
  const { prompt, grammar, tools } = asked;
  if (prompt.kind === "sealed") return asked;
  return { ...asked, prompt: sealContent({ prompt, grammar, tools }), grammar: null, tools: null };
}
