import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { after, describe, it } from "node:test";
import { type ExtraRoute, extraRoutes } from "../../../../cli/embed/extra-routes.ts";
import { createApp } from "../../../../http/app.ts";
import { ApiKeys } from "../../../../http/server/access/api-keys.ts";
import { Mount } from "../../../../http/server/mount/mount.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

const cookies = ["session=1; Path=/", "theme=dark"];

function withCookies(body: string, status: number): Response {
  const response = new Response(body, { status });
  for (const cookie of cookies) response.headers.append("set-cookie", cookie);
  return response;
}

const own: readonly ExtraRoute[] = [
  { method: "GET", path: "/streamed", handler: () => withCookies("streamed", 200) },
  { method: "GET", path: "/created", handler: () => withCookies("created", 201) },
  {
    method: "GET",
    path: "/status/{status}",
    handler: (_, { status }) => new Response(null, { status: Number(status) }),
  },
  { method: "GET", path: "/moved", handler: () => Response.redirect("http://localhost/elsewhere", 302) },
];

const app = createApp({ inference: new FakeInference(), log: recordingLog(), extraRoutes: extraRoutes(own, 1000) });
const mount = new Mount(app.handle, {
  basePath: "",
  admit: app.admit,
  spoolFolder: app.spoolFolder,
  maxBodyBytesInFlight: 2 ** 20,
  requestTimeoutMs: 1000,
});
const server = createServer((request, response) => mount.node(request, response)).listen(0);
await once(server, "listening");
const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
after(() => server.close());

const ways = {
  fetch: (path: string) => mount.fetch(new Request(`http://localhost${path}`)),
  node: (path: string) => fetch(url + path, { redirect: "manual" }),
};

for (const [way, get] of Object.entries(ways)) {
  describe(`a route of the embedding program, by ${way}`, () => {
    it("sets several cookies", async () => {
      for (const [path, status] of [["/streamed", 200] as const, ["/created", 201] as const]) {
        const response = await get(path);
        assert.deepEqual([response.status, await response.text()], [status, path.slice(1)]);
        assert.deepEqual(response.headers.getSetCookie(), cookies);
      }
    });

    it("answers with a status that has no body", async () => {
      for (const status of [204, 205, 304]) {
        const response = await get(`/status/${status}`);
        assert.deepEqual([response.status, await response.text()], [status, ""]);
      }
      assert.equal((await get("/moved")).headers.get("location"), "http://localhost/elsewhere");
    });
  });
}

describe("the routes of the embedding program", () => {
  it("cannot replace troupe's own, whatever the names of their parameters", () => {
    const handler = () => new Response();
    for (const path of ["/v1/models", "/v1/responses/{id}"]) {
      assert.throws(() => extraRoutes([{ method: "GET", path, handler }], 1000), {
        code: "config_invalid",
        message: `GET ${path} is a route of troupe; use another path`,
      });
    }
  });
});

describe("routes of the embedding program below /.well-known/", () => {
  it("need the API key, as its other routes do", () => {
    const { admit } = createApp({
      ...{ inference: new FakeInference(), log: recordingLog(), apiKeys: new ApiKeys(["key"]) },
      extraRoutes: extraRoutes(
        [{ method: "GET", path: "/.well-known/mine", handler: () => new Response("mine") }],
        1000,
      ),
    });
    const codeOf = (path: string) =>
      admit({ method: "GET", path, headers: new Map() } as unknown as Parameters<typeof admit>[0])?.code;
    assert.equal(codeOf("/.well-known/mine"), "invalid_api_key");
    assert.equal(codeOf("/.well-known/oauth-authorization-server"), undefined);
  });
});
