// API explorer: GET /docs and the files of its page. The page loads nothing from other servers, and its content security policy
// enforces that.
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import { asset, assetNames, explorerPage } from "./assets.ts";

const SECONDS_TO_KEEP = 3600;

// The policy allows inline styles and data images, because Swagger UI writes style attributes and embeds images in its style
// sheet.
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
