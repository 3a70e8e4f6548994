// OpenAPI description of GET /api-doc/openapi.json.
import { z } from "zod";
import { jsonAnswer, type Operation } from "../operation.ts";

const document = z
  .looseObject({
    openapi: z.literal("3.1.0"),
    info: z.looseObject({ title: z.string(), version: z.string() }),
    paths: z.record(z.string(), z.looseObject({})),
    components: z.looseObject({}),
  })
  .meta({ id: "ApiDocument" });

export const openApiOperation: Operation = {
  id: "getApiDocument",
  tag: "Operations",
  summary: "The API document",
  answers: jsonAnswer(document, "The API document, OpenAPI 3.1"),
  errors: [],
};
