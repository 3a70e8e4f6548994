// Web UI: GET /ui and the files of its page. The page loads nothing from other servers, which its content security policy
// enforces.
import { ServerError } from "../../runtime/errors.ts";
import type { RouteHandler } from "../context.ts";
import type { Exchange } from "../exchange.ts";
import { pageName, type UiFile, uiFiles } from "./assets.ts";

const SECONDS_TO_KEEP = 31_536_000;

// The policy allows inline styles, because rendered diagrams and formulas contain them.
const policy =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; " +
  "font-src 'self' data:; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/**
 * Content security policy of web worker scripts, which replaces the policy of the page. It allows 'unsafe-eval', because JSON
 * schema validation and the grammar library compile functions.
 */
const workerPolicy =
  "default-src 'none'; script-src 'self' 'wasm-unsafe-eval' 'unsafe-eval'; connect-src 'self'; worker-src 'self'";

const commonHeaders = {
  "x-content-type-options": "nosniff",
  "referrer-policy": "no-referrer",
  // Cross-origin isolation, which browsers require for memory that workers share (SharedArrayBuffer).
  "cross-origin-opener-policy": "same-origin",
  "cross-origin-embedder-policy": "require-corp",
  "cross-origin-resource-policy": "same-origin",
  vary: "accept-encoding",
};

/** Redirects /ui to /ui/, because the URLs in the page are relative to `ui/`. */
export const uiRedirect: RouteHandler = (exchange) => exchange.send(308, { ...commonHeaders, location: "ui/" }, "");

export const uiPage: RouteHandler = (exchange) => sendFile(exchange, pageName);

export const uiFile: RouteHandler = (exchange) => sendFile(exchange, exchange.parameters.file ?? "");

async function sendFile(exchange: Exchange, name: string): Promise<void> {
  const files = await uiFiles();
  const file = files.get(name);
  if (file === undefined) throw missing(name, files.size);
  if (exchange.request.signal.aborted) return;
  const caching = file.isHashed ? `public, max-age=${SECONDS_TO_KEEP}, immutable` : "no-cache";
  const headers = { ...commonHeaders, etag: file.etag, "cache-control": caching };
  if (exchange.request.headers.get("if-none-match") === file.etag) exchange.send(304, headers, "");
  else sendBody(exchange, file, { ...headers, ...policyOf(name) });
}

function policyOf(name: string): Record<string, string> {
  if (name === pageName) return { "content-security-policy": policy };
  return name.endsWith(".js") ? { "content-security-policy": workerPolicy } : {};
}

function sendBody(exchange: Exchange, { contentType, body, brotli }: UiFile, headers: Record<string, string>): void {
  const accepted = exchange.request.headers.get("accept-encoding") ?? "";
  const isCompressed = brotli !== null && /\bbr\b(?!;q=0(?:\.0+)?(?:,|$))/.test(accepted);
  const type = { ...headers, "content-type": contentType };
  if (isCompressed) exchange.send(200, { ...type, "content-encoding": "br" }, brotli);
  else exchange.send(200, type, body);
}

function missing(name: string, count: number): ServerError {
  if (count > 0) return new ServerError("not_found", `expected a file of the web UI, got "${name.slice(0, 100)}"`);
  return new ServerError("not_found", "the web UI has not been built: run npm run build");
}
