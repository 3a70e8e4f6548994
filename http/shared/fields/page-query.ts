// Pagination of lists: the query parameters `limit` and `after`, and the pagination fields of a response.
import { z } from "zod";
import { ServerError } from "../../../runtime/errors.ts";
import { expected } from "../../issues.ts";
import { readQuery } from "../read-query.ts";

const DEFAULT_LIMIT = "20";

export const pageQuery = z.object({
  limit: z
    .string()
    .regex(/^(?:[1-9]\d?|100)$/, { error: expected("a number from 1 to 100") })
    .optional()
    .meta({ description: "Maximum number of entries per page.", default: DEFAULT_LIMIT }),
  after: z.string().max(256).optional().meta({ description: "Id of an entry; the page starts after it." }),
});

/** Fields of a list response in addition to `object` and `data`. */
export const pageFields = {
  first_id: z.string().nullable(),
  last_id: z.string().nullable(),
  has_more: z.boolean(),
};

export interface PageRequest {
  readonly after: string | null;
  readonly limit: number;
}

/** Parses the page parameters of a query. Throws invalid_value. */
export function readPageQuery(query: string): PageRequest {
  const { limit = DEFAULT_LIMIT, after = null } = readQuery(query, pageQuery);
  return { after, limit: Number(limit) };
}

/** Builds the response body of a list route. */
export function pageOf(data: readonly { readonly id: string }[], hasMore: boolean): object {
  return { object: "list", data, first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null, has_more: hasMore };
}

/** Creates the error for an `after` that is not the id of an entry. `what`: kind of entry. */
export function unknownAfter(what: string, { after }: PageRequest): ServerError {
  const message = `after: expected the id of a ${what} in the list, got ${JSON.stringify(after)}; it may have been deleted, so begin without after`;
  return new ServerError("invalid_value", message, { param: "after" });
}
