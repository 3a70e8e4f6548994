// Recorded requests of real clients (test/fixtures/recordings): the server accepts each unchanged. A recording names the
// client and its version. `{response}` stands for the id of the most recently stored response.
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { after, describe, it } from "node:test";
import { begin, done, finish, type Script, text, toolCall } from "../../fixtures/fakes/fake-inference.ts";
import { startServer } from "../../fixtures/http-server.ts";

interface RecordedRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: Record<string, string>;
  readonly body?: { readonly stream?: boolean };
}

interface Recording {
  readonly client: string;
  readonly source: string;
  readonly requests: readonly RecordedRequest[];
}

const folder = new URL("../../../../test/fixtures/recordings/", import.meta.url);
const recordings = readdirSync(folder, { recursive: true, encoding: "utf8" })
  .filter((file) => file.endsWith(".json"))
  .map((file) => JSON.parse(readFileSync(new URL(file, folder), "utf8")) as Recording);

/** Script that calls the first tool if a call is required. */
const answer: Script = ({ tools }) =>
  tools?.required
    ? [[begin(), ...toolCall(tools.specs[0]!.name, ["{}"]), finish("tool_calls"), done]]
    : [[begin(), text("Hello"), finish(), done]];

/** Asserts that a stream has the content type of its protocol and ends without an error. */
function assertStreamed(path: string, type: string, body: string): void {
  assert.match(type, path.startsWith("/api/") ? /^application\/x-ndjson/ : /^text\/event-stream/);
  assert.ok(!body.includes('"error":{'), body);
  assert.match(body, path.startsWith("/api/") ? /"done":true/ : /\[DONE\]|message_stop/);
}

describe("recorded requests are accepted", async () => {
  const server = await startServer("node", { script: answer });
  after(() => server.stop());

  for (const { client, source, requests } of recordings) {
    describe(`${client} (${source})`, () => {
      let stored = "";
      requests.forEach(({ method, path, headers, body }, i) => {
        it(`${i + 1}. ${method} ${path}`, async () => {
          const reply = await fetch(`${server.url}${path.replace("{response}", stored)}`, {
            method,
            headers,
            ...(body === undefined ? {} : { body: JSON.stringify(body).replaceAll("{response}", stored) }),
          });
          const received = await reply.text();
          assert.equal(reply.status, 200, received);
          stored = /"id":"(resp_[0-9a-f]+)"/.exec(received)?.[1] ?? stored;
          const streams = body?.stream ?? (path === "/api/chat" || path === "/api/generate");
          if (streams) assertStreamed(path, reply.headers.get("content-type") ?? "", received);
          else assert.doesNotThrow(() => JSON.parse(received));
        });
      });
    });
  }
});
