// GET /v1/responses: lists the stored responses of all clients, with the beginnings of their input and output texts.
import { z } from "zod";
import type { ListedResponse } from "../../../actors/api/stored-responses.ts";
import type { RouteHandler } from "../../context.ts";
import { pageFields, pageOf, readPageQuery } from "../../shared/fields/page-query.ts";
import { responseSchema } from "../fold/resource-schema.ts";
import { TEXT_START_LENGTH } from "./text-start.ts";

const start = (of: string) =>
  z
    .string()
    .nullable()
    .meta({ description: `First ${TEXT_START_LENGTH} characters of ${of}; null: there is none.` });

const listedResponseSchema = z
  .strictObject({
    id: z.string(),
    object: z.literal("response.summary"),
    created_at: z.int().min(0).meta({ description: "Unix time in seconds." }),
    status: responseSchema.shape.status,
    model: z.string().nullable().meta({ description: "null: an earlier version of troupe stored the response." }),
    background: z.boolean(),
    input: start("the user's last message in the request"),
    output: start("the output text; also while the response is in progress"),
  })
  .meta({ id: "ResponseSummary" });

export const responseListSchema = z.strictObject({
  object: z.literal("list"),
  data: z.array(listedResponseSchema),
  ...pageFields,
});

export const listResponses: RouteHandler = async (exchange, { responses }) => {
  const page = await responses.list(readPageQuery(exchange.request.query));
  exchange.json(200, pageOf(page.responses.map(wireResponse), page.hasMore));
};

function wireResponse({ id, createdAt, status, model, isBackground, inputStart, outputStart }: ListedResponse) {
  return {
    id,
    object: "response.summary",
    created_at: createdAt,
    status,
    model,
    background: isBackground,
    input: inputStart,
    output: outputStart,
  };
}
