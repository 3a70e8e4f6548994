// Translation: what a request body says, as facts for the route and the request for the model, which the route passes on. A pure
// function of the body, run here or on a text worker. On a text worker the content is sealed, so that the threads on its way
// pass it on unread.
import type { z } from "zod";
import { movedWith, sealContent } from "../../actors/api/sealed-content.ts";
import type { GenerateRequest } from "../../engines/generation.ts";
import type { TaskOutput } from "../../runtime/task/task.ts";
import { validate } from "../json.ts";
import { type IgnoredField, ignoredFields } from "./ignored.ts";
import type { Origin } from "./origin.ts";

/** A request for the model, without the fields that come from its exchange. */
export type AskedRequest = Omit<GenerateRequest, keyof Origin>;

/** The part that every route has. Plain data. */
export interface Translation {
  /** What the body names as its model. */
  readonly model: string | null | undefined;
  readonly ignored: readonly IgnoredField[];
}

/** How the bodies of one route are read. */
export interface BodyTranslator<T extends Translation> {
  readonly name: string;
  /** `value` is what the JSON of the body holds. Throws ServerError naming the field at fault. */
  translate(value: unknown, parameters: unknown): T;
  /** The same on its way from a text worker. */
  pack(translated: T): TaskOutput;
}

/** The translation of a request for generation: facts for the route, and the request for the model. */
export interface AskedTranslation<Facts> extends Translation {
  readonly facts: Facts;
  readonly asked: AskedRequest;
}

/** The translator of a route whose bodies `schema` describes. */
export function askedTranslator<Schema extends z.ZodObject, Facts>(
  name: string,
  schema: Schema,
  factsOf: (body: z.output<Schema>) => Facts & { readonly model: Translation["model"] },
  askedOf: (body: z.output<Schema>) => AskedRequest,
): BodyTranslator<AskedTranslation<Facts>> {
  return {
    name,
    translate(value) {
      const body = validate(schema, value);
      const facts = factsOf(body);
      return { model: facts.model, ignored: ignoredFields(schema, body), facts, asked: askedOf(body) };
    },
    pack(translated) {
      const asked = sealed(translated.asked);
      return { value: { ...translated, asked }, transfer: movedWith(asked) };
    },
  };
}

/** The request with its content sealed. */
export function sealed(asked: AskedRequest): AskedRequest {
  const { prompt, grammar, tools } = asked;
  if (prompt.kind === "sealed") return asked;
  return { ...asked, prompt: sealContent({ prompt, grammar, tools }), grammar: null, tools: null };
}
