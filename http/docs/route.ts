// Owns GET /docs and what its page loads: the API explorer. It asks for nothing beyond this server, and its browser is told
// to see to that.
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { asset, assetNames, explorerPage } from "./assets.ts";

const SECONDS_TO_KEEP = 3600;

// Swagger UI writes style attributes; its pictures are part of its style sheet.
const pageHeaders = {
  "content-type": explorerPage.contentType,
  "cache-control": "no-cache",
  "content-security-policy":
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  "referrer-policy": "no-referrer",
  "x-content-type-options": "nosniff",
};

export const docs: RouteHandler = (exchange) => exchange.send(200, pageHeaders, explorerPage.body);

export const docsAsset: RouteHandler = async (exchange) => {
  const found = await asset(exchange.parameters.asset ?? "");
  if (found === null) throw new ServerError("not_found", `expected one of ${assetNames.join(", ")} below /docs`);
  const headers = {
    "content-type": found.contentType,
    "cache-control": `public, max-age=${SECONDS_TO_KEEP}`,
    "x-content-type-options": "nosniff",
  };
  if (!exchange.request.signal.aborted) exchange.send(200, headers, found.body);
};
