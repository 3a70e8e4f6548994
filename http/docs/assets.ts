// Owns the files of the API explorer: Swagger UI as its package ships it, and the page that starts it. A fixed list, read
// when first asked for and kept; nothing a client sends is part of a file's name.
import { readFile } from "node:fs/promises";

export interface Asset {
  readonly contentType: string;
  readonly body: string | Uint8Array;
}

const html = "text/html; charset=utf-8";
// Without the charset browsers read the bundle in another one, and find characters that are none.
const script = "text/javascript; charset=utf-8";

// Addresses are relative: behind a proxy the server may stand under a path of its own.
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

// No validatorUrl: the badge of a validator on the internet is nothing an offline page should ask for.
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

/** By name, what the package has. */
const shipped: ReadonlyMap<string, string> = new Map([
  ["swagger-ui-bundle.js", script],
  ["swagger-ui.css", "text/css; charset=utf-8"],
  ["favicon-32x32.png", "image/png"],
]);

export const assetNames: readonly string[] = [...made.keys(), ...shipped.keys()];

const kept = new Map<string, Promise<Asset>>();

/** The file of a name; null where there is none. */
export async function asset(name: string): Promise<Asset | null> {
  const contentType = shipped.get(name);
  if (contentType === undefined) return made.get(name) ?? null;
  const reading = kept.get(name) ?? readShipped(name, contentType);
  kept.set(name, reading);
  // What could not be read is tried again by the next who asks.
  reading.catch(() => kept.delete(name));
  return reading;
}

async function readShipped(name: string, contentType: string): Promise<Asset> {
  const folder = new URL(".", import.meta.resolve("swagger-ui-dist/package.json"));
  return { contentType, body: await readFile(new URL(name, folder)) };
}
