// Models in the format of the messages protocol: entries, pages, and the page query. Used for requests with the header
// anthropic-version.
import { z } from "zod";
import { ServerError } from "../../runtime/errors.ts";
import { expected } from "../issues.ts";

const DEFAULT_LIMIT = 20;
const MAX_ID_LENGTH = 4096;

interface ListedModel {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
}

const cursor = z.string().max(MAX_ID_LENGTH).optional();

export const modelPageQuery = z.object({
  limit: z
    .string()
    .regex(/^(?:[1-9]\d{0,2}|1000)$/, { error: expected("a number from 1 to 1000") })
    .optional()
    .meta({ description: "With anthropic-version: maximum number of models per page.", default: `${DEFAULT_LIMIT}` }),
  after_id: cursor.meta({ description: "With anthropic-version: the page starts after this model." }),
  before_id: cursor.meta({ description: "With anthropic-version: the page ends before this model." }),
});

export const modelInfoSchema = z
  .strictObject({
    type: z.literal("model"),
    id: z.string().meta({ description: "Name of the model in requests." }),
    display_name: z.string(),
    created_at: z.string().meta({ description: "Time in RFC 3339." }),
  })
  .meta({ id: "ModelInfo" });

export const modelPageSchema = z
  .strictObject({
    data: z.array(modelInfoSchema),
    has_more: z.boolean().meta({ description: "Whether more models follow in the direction of paging." }),
    first_id: z.string().nullable(),
    last_id: z.string().nullable(),
  })
  .meta({ id: "ModelPage" });

export function modelInfo({ id, created }: ListedModel): z.output<typeof modelInfoSchema> {
  return { type: "model", id, display_name: id, created_at: new Date(created * 1000).toISOString() };
}

/** Returns a page of models. Throws `invalid_value` for an unknown model id, or if after_id and before_id are both set. */
export function modelPage(
  models: readonly ListedModel[],
  { limit, after_id, before_id }: z.output<typeof modelPageQuery>,
): z.output<typeof modelPageSchema> {
  if (after_id !== undefined && before_id !== undefined) {
    throw wrong("before_id", "cannot be combined with after_id; send one of them");
  }
  const size = Number(limit ?? DEFAULT_LIMIT);
  const end = before_id === undefined ? models.length : indexOf(models, "before_id", before_id);
  const first = after_id === undefined ? 0 : indexOf(models, "after_id", after_id) + 1;
  const start = before_id === undefined ? first : Math.max(end - size, 0);
  const data = models.slice(start, Math.min(start + size, end)).map(modelInfo);
  return {
    data,
    has_more: before_id === undefined ? start + size < end : start > 0,
    first_id: data.at(0)?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
  };
}

function indexOf(models: readonly ListedModel[], param: string, id: string): number {
  const at = models.findIndex((model) => model.id === id);
  if (at >= 0) return at;
  throw wrong(param, `expected the id of a listed model, got ${JSON.stringify(id.slice(0, 60))}`);
}

function wrong(param: string, message: string): ServerError {
  return new ServerError("invalid_value", `${param}: ${message}`, { param });
}
