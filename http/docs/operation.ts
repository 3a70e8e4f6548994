// OpenAPI description of the API explorer (GET /docs).
import { z } from "zod";
import type { Operation } from "../operation.ts";
import { assetNames } from "./assets.ts";

export const docsOperation: Operation = {
  id: "showDocs",
  tag: "Operations",
  summary: "The API explorer",
  description: "A page that shows this document and sends requests. It loads nothing from other servers.",
  answers: { 200: [{ contentType: "text/html", description: "The page" }] },
  errors: [],
};

export const docsAssetOperation: Operation = {
  id: "getDocsAsset",
  tag: "Operations",
  summary: "A file of the API explorer",
  path: z.object({ asset: z.enum(assetNames).meta({ description: "File name." }) }),
  answers: {
    200: [
      { contentType: "text/javascript", description: "A script" },
      { contentType: "text/css", description: "The style sheet" },
      { contentType: "image/png", description: "The icon" },
    ],
  },
  errors: ["not_found"],
};
