// Media sources: limits on the number of concurrent loads and on the bytes in memory.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { MediaSources } from "../../../../actors/front/media-sources.ts";
import type { RequestMedia } from "../../../../engines/generation.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { request } from "../generation/rig.ts";

const { signal } = new AbortController();
const large = new Uint8Array(64 * 2 ** 20);

function files(count: number, name = "file", client = "a") {
  const media = Array.from({ length: count }, (_, i): RequestMedia => {
    return { key: `${i}`, param: `images[${i}]`, source: { kind: "file", id: `${name} ${i}` } };
  });
  return request({ media, client });
}

/** Returns sources whose loads take a short time. `most`: the largest number of concurrent loads so far. */
function slowSources() {
  const loads = { now: 0, most: 0, all: 0 };
  const readFile = async (id: string) => {
    loads.all++;
    loads.most = Math.max(loads.most, ++loads.now);
    await sleep(5);
    loads.now--;
    if (id.startsWith("bad")) throw new ServerError("not_found", `no file ${id}`);
    return Uint8Array.from(Buffer.from(id));
  };
  return { loads, sources: new MediaSources({ readFile }) };
}

describe("images of requests", () => {
  it("are loaded two at a time, in their order", async () => {
    const { loads, sources } = slowSources();
    const { media = [] } = (await sources.load(files(9), 4, signal)).request;
    const texts = media.map(({ source }) => (source.kind === "data" ? Buffer.from(source.bytes).toString() : ""));
    assert.deepEqual(
      texts,
      Array.from({ length: 9 }, (_, i) => `file ${i}`),
    );
    assert.equal(loads.most, 2);
  });

  it("are loaded eight at a time, of all requests", async () => {
    const { loads, sources } = slowSources();
    await Promise.all(Array.from({ length: 10 }, (_, i) => sources.load(files(3, "file", `${i % 2}`), 4, signal)));
    assert.deepEqual([loads.most, loads.all], [8, 30]);
  });

  it("are loaded four at a time of one client", async () => {
    const { loads, sources } = slowSources();
    await Promise.all(Array.from({ length: 10 }, () => sources.load(files(3), 4, signal)));
    assert.deepEqual([loads.most, loads.all], [4, 30]);
  });

  it("are not loaded after one has failed, which the error names", async () => {
    const { loads, sources } = slowSources();
    const expected = { code: "not_found", message: /could not be loaded: no file bad/, param: /^images\[[01]\]$/ };
    await assert.rejects(sources.load(files(20, "bad"), 4, signal), ({ code, message, param }: ServerError) => {
      assert.match(`${param}`, expected.param);
      assert.match(message, expected.message);
      return code === expected.code;
    });
    await sleep(50);
    assert.ok(loads.all <= 4, `${loads.all} loads`);
  });

  it("are refused if those of one request are too large together, and then not counted", async () => {
    const sources = new MediaSources({ readFile: async () => large });
    for (let i = 0; i < 4; i++) {
      const refused = { code: "invalid_value", message: /at most 128 MiB together/ };
      await assert.rejects(sources.load(files(3), 4, signal), refused);
    }
  });

  it("are refused if those of all requests are too large together, until some are released", async () => {
    const sources = new MediaSources({ readFile: async () => large });
    const loaded = [];
    for (const client of ["a", "a", "b", "b"]) loaded.push(await sources.load(files(2, "file", client), 4, signal));
    const ofClient = /^this client's requests in progress have more than 256 MiB/;
    await assert.rejects(sources.load(files(1), 4, signal), { code: "queue_full", message: ofClient });
    await assert.rejects(sources.load(files(1, "file", "c"), 4, signal), {
      code: "queue_full",
      message: /^the requests in progress have more than 512 MiB of loaded images/,
    });
    loaded[0]?.release();
    await sources.load(files(1), 4, signal);
  });
});
