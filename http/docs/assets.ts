// Files of the API explorer: Swagger UI from its package, and the page that starts it. The list of files is fixed, so a
// client's input never becomes part of a file name. Files are read at the first request and kept in memory.
import { readFile } from "node:fs/promises";

export interface Asset {
  readonly contentType: string;
  readonly body: string | Uint8Array;
}

const html = "text/html; charset=utf-8";
// Without the charset a browser may decode the bundle wrongly and reject characters in it.
const script = "text/javascript; charset=utf-8";

// URLs are relative, because a proxy may serve this server under a path prefix.
const page = `<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8">
    <meta name="viewport" content="width=device-width, initial-scale=1">
    <title>troupe: API</title>
    <link rel="icon" type="image/png" href="docs/favicon-32x32.png">
    <link rel="stylesheet" href="docs/swagger-ui.css">
  </head>
  <body>
    <div id="explorer"></div>
    <script src="docs/swagger-ui-bundle.js"></script>
    <script src="docs/start.js"></script>
  </body>
</html>
`;

// validatorUrl is null because an offline page must not load a validation badge from the internet.
const start = `SwaggerUIBundle({
  url: "api-doc/openapi.json",
  dom_id: "#explorer",
  deepLinking: true,
  displayRequestDuration: true,
  defaultModelsExpandDepth: 0,
  validatorUrl: null,
});
`;

export const explorerPage: Asset = { contentType: html, body: page };

const made: ReadonlyMap<string, Asset> = new Map([["start.js", { contentType: script, body: start }]]);

/** Files of the Swagger UI package, with their content types. */
const shipped: ReadonlyMap<string, string> = new Map([
  ["swagger-ui-bundle.js", script],
  ["swagger-ui.css", "text/css; charset=utf-8"],
  ["favicon-32x32.png", "image/png"],
]);

export const assetNames: readonly string[] = [...made.keys(), ...shipped.keys()];

const kept = new Map<string, Promise<Asset>>();

/** Returns the file with a name; null if there is no such file. */
export async function asset(name: string): Promise<Asset | null> {
  const contentType = shipped.get(name);
  if (contentType === undefined) return made.get(name) ?? null;
  const reading = kept.get(name) ?? readShipped(name, contentType);
  kept.set(name, reading);
  // A failed read is retried at the next request.
  reading.catch(() => kept.delete(name));
  return reading;
}

async function readShipped(name: string, contentType: string): Promise<Asset> {
  const folder = new URL(".", import.meta.resolve("swagger-ui-dist/package.json"));
  return { contentType, body: await readFile(new URL(name, folder)) };
}
