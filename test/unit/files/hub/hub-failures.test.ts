import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { TemporaryFailure, withRetries } from "../../../../engines/files/hub/download/retry.ts";
import { type FakeRequest, type Fault, startFakeHub } from "../../../fixtures/fakes/fake-hub.ts";
import { limits, modelBytes, repo, useHub } from "./hub-rig.ts";

const rig = await useHub();
const { hub } = rig;
const file = "tiny-Q8_0.gguf";
const bytes = modelBytes();

/** Returns a fault function that fails the first `times` matching requests. */
function failing(times: number, matches: (request: FakeRequest) => boolean, fault: Fault): typeof hub.fault {
  let left = times;
  return (request) => (matches(request) && left-- > 0 ? fault : null);
}
const isCdn = ({ host }: FakeRequest) => host === "cdn";
const isListing = ({ path }: FakeRequest) => path.startsWith("/api/");
const isHead = ({ method }: FakeRequest) => method === "HEAD";
const isResolve = ({ method, path }: FakeRequest) => method === "GET" && path.includes("/resolve/");

describe("a hub that fails for a while", () => {
  const passing: Record<string, [number, (request: FakeRequest) => boolean, Fault]> = {
    "drops connections in the middle of bodies": [4, isCdn, { dropAfter: 300 }],
    "drops connections before the first byte": [2, isCdn, { dropAfter: 0 }],
    "stalls in the middle of a body": [1, isCdn, { stallAfter: 300 }],
    "answers 500 to the list": [2, isListing, { status: 500 }],
    "answers 503 to the question for the file": [2, isHead, { status: 503 }],
    "answers 502 to a range": [2, isCdn, { status: 502 }],
    "answers 429 without a time to wait": [2, isListing, { status: 429 }],
    "sends an address that has expired": [2, isCdn, { status: 403 }],
    "breaks off a list": [1, isListing, { dropAfter: 10 }],
    "sends another range": [1, isCdn, { headers: { "content-range": "bytes 7-1006/4500" } }],
    "ends a body too early without saying so": [
      1,
      (request) => isCdn(request) && request.range === "bytes=0-999",
      { body: bytes.subarray(0, 10), headers: { "content-length": "", "transfer-encoding": "chunked" } },
    ],
    "sends more than a range": [1, isCdn, { body: Buffer.alloc(2000) }],
  };
  for (const [name, [times, matches, fault]] of Object.entries(passing)) {
    it(`is retried when it ${name}`, async () => {
      rig.put({ [file]: bytes });
      hub.fault = failing(times, matches, fault);
      await rig.assertFetched(bytes);
    });
  }

  it("is asked for the rest when the body broke off", async () => {
    rig.put({ [file]: bytes });
    hub.fault = failing(1, (request) => isCdn(request) && request.range === "bytes=0-999", { dropAfter: 300 });
    await rig.assertFetched(bytes);
    assert.ok(hub.ranges().includes("bytes=300-999"));
  });

  it("is given the time it asks for", async () => {
    const started = Date.now();
    let tries = 0;
    await withRetries({ environment: {}, endpoint: hub.url, token: null, limits, signal: undefined }, async () => {
      if (tries++ === 0) throw new TemporaryFailure("busy", { retryAfterMs: 50 });
    });
    assert.ok(Date.now() - started >= 49);
  });

  it("is abandoned when it asks for too long a wait, in seconds or by a date", async () => {
    rig.put({ [file]: bytes });
    for (const wait of ["3600", new Date(Date.now() + 3_600_000).toUTCString()]) {
      hub.fault = failing(1, isListing, { status: 429, headers: { "retry-after": wait } });
      await rig.assertRefused(
        repo,
        "model_source_unreachable",
        /answered 429, asking to wait 3[56]\d\d s \(it asked for too long/,
      );
    }
  });

  it("is abandoned after several consecutive failures, and the received part is kept", async () => {
    rig.put({ [file]: bytes });
    hub.fault = (request) => (isCdn(request) && request.range?.endsWith("-4499") ? { dropAfter: 10 } : null);
    await rig.assertRefused(
      repo,
      "model_source_unreachable",
      /^the hub .* connection failed \(.*\(tried 3 times\); check/,
    );
    hub.requests.length = 0;
    hub.fault = () => null;
    await rig.assertFetched(bytes);
    assert.deepEqual(hub.ranges(), ["bytes=4030-4499"]);
  });

  it("is not abandoned while each attempt makes progress", async () => {
    rig.put({ [file]: bytes });
    hub.fault = (request) => (isCdn(request) ? { dropAfter: 60 } : null);
    await rig.assertFetched(bytes, repo, { limits: { ...limits, connections: 5, progressBytes: 50 } });
    assert.ok(hub.ranges().length > 5 * limits.attempts);
  });

  it("that is unreachable is explained", async () => {
    const gone = await startFakeHub();
    await gone.stop();
    const environment = { ...rig.environment, HF_ENDPOINT: gone.url };
    await rig.assertRefused(
      repo,
      "model_source_unreachable",
      /^the hub http:\/\/127.* cannot be used: the connection failed \(ECONNREFUSED\) \(tried 3 times\).*HF_ENDPOINT/,
      {
        environment,
      },
    );
  });
});

describe("a server without ranges", () => {
  it("sends the file in one stream", async () => {
    rig.put({ [file]: bytes });
    hub.knowsRanges = false;
    await rig.assertFetched(bytes);
    assert.equal(hub.ranges().at(-1), undefined);
  });

  it("is asked again when the stream breaks", async () => {
    rig.put({ [file]: bytes });
    hub.knowsRanges = false;
    hub.fault = failing(2, ({ host, range }) => host === "cdn" && range === undefined, { dropAfter: 2500 });
    await rig.assertFetched(bytes);
  });

  it("is refused when it sends another length", async () => {
    rig.put({ [file]: bytes });
    hub.knowsRanges = false;
    hub.fault = (request) => (isCdn(request) ? { body: bytes.subarray(1) } : null);
    await rig.assertRefused(repo, "model_source_unreachable", /has 4500 bytes and then sends 4499;/);
  });
});

describe("a hub that sends wrong data", () => {
  const lies: Record<string, [(request: FakeRequest) => boolean, Fault, RegExp]> = {
    "about the size, against its own list": [
      isHead,
      { headers: { "x-linked-size": "4501" } },
      /lists "tiny-Q8_0\.gguf" with 4500 bytes and then offers 4501$/,
    ],
    "about the size, against what is delivered": [
      isCdn,
      { headers: { "content-range": "bytes 0-999/4400" } },
      /has 4500 bytes and then sends 4400; try again later$/,
    ],
    "with a size that is none": [isHead, { headers: { "x-linked-size": "-1" } }, /lacks an ETag or a size$/],
    "with an ETag that is a path": [isHead, { headers: { "x-linked-etag": '"../../x"' } }, /lacks an ETag or a size$/],
    "with another file between two parts": [
      ({ path, range, method }) =>
        method === "GET" && path.includes("/resolve/") && range?.startsWith("bytes=2000") === true,
      { headers: { "x-linked-etag": '"abc"' } },
      /"tiny-Q8_0\.gguf" changed while it was fetched; start again$/,
    ],
    "with other bytes": [
      ({ range }) => range === "bytes=1000-1999",
      { body: Buffer.alloc(1000) },
      /does not match its sha256 [0-9a-f]{64}/,
    ],
    "with a list that is none": [
      isListing,
      { body: Buffer.from("<html>") },
      /its list of the files .* cannot be read$/,
    ],
    "with a commit that is a path": [
      isListing,
      { body: Buffer.from('{"sha":"../../..","siblings":[]}') },
      /its list of the files .* cannot be read$/,
    ],
    "by redirecting for ever": [isHead, { headers: { location: "/x" }, status: 307 }, /redirects more than 5 times$/],
    "by redirecting to what is no web address": [
      isResolve,
      { headers: { location: "file:///etc/passwd" } },
      /redirects to an unsafe address$/,
    ],
  };
  for (const [name, [matches, fault, message]] of Object.entries(lies)) {
    it(`${name}, is refused, and nothing is kept as a model`, async () => {
      rig.put({ [file]: bytes });
      const loops = (request: FakeRequest) => name === "by redirecting for ever" && request.path === "/x";
      hub.fault = (request) => (matches(request) || loops(request) ? fault : null);
      await rig.assertRefused(repo, "model_source_unreachable", message);
      assert.ok(
        rig.blobs().every((blob) => /\.partial(\.json)?$/.test(blob)),
        rig.blobs().join(),
      );
      hub.fault = () => null;
      await rig.assertFetched(bytes);
    });
  }

  it("about a size that no disk has, is rejected before a byte is fetched", async () => {
    rig.put({ [file]: bytes });
    const siblings = [{ rfilename: file, size: 2 ** 52 }];
    const body = Buffer.from(JSON.stringify({ sha: hub.commit, siblings }));
    hub.fault = (request) => {
      if (isHead(request)) return { headers: { "x-linked-size": String(2 ** 52) } };
      return isListing(request) ? { body } : null;
    };
    await rig.assertRefused(
      repo,
      "config_invalid",
      /^4503599\.63 GB are needed in .* are free; make room, or set HF_HUB_CACHE/,
    );
    assert.deepEqual(hub.ranges(), []);
  });
});

describe("a model or file that the hub does not have", () => {
  it("is explained with the nearest model", async () => {
    rig.put({ [file]: bytes }, "acme/tiny-GGUF");
    await rig.assertRefused(
      "acme/tinny-GGUF",
      "model_file_invalid",
      /^"acme\/tinny-GGUF" is not a model on the hub, and not a local path; did you mean "acme\/tiny-GGUF"\?$/,
    );
  });

  it("is explained with the existing revisions", async () => {
    rig.put({ [file]: bytes });
    hub.branches.push("v2");
    await rig.assertRefused(`${repo}@v3`, "model_file_invalid", /no revision "v3"; did you mean "v2"\?: main, v2$/);
  });

  it("is explained with the existing files", async () => {
    rig.put({ [file]: bytes, "tiny-Q4_K_M.gguf": bytes, "mmproj-F16.gguf": bytes });
    await rig.assertRefused(
      `${repo}:Q4_K_S`,
      "model_file_invalid",
      /^there is no model "Q4_K_S" in "acme\/tiny-GGUF"; did you mean "Q4_K_M"\?: "tiny-Q4_K_M\.gguf", "tiny-Q8_0\.gguf"$/,
    );
  });

  it("is reported as removed when only the file is missing", async () => {
    rig.put({ [file]: bytes });
    hub.fault = (request) => (isHead(request) ? { status: 404, headers: { "x-error-code": "EntryNotFound" } } : null);
    await rig.assertRefused(repo, "model_file_invalid", /lists "tiny-Q8_0\.gguf" but does not have it/);
  });
});

describe("the token", () => {
  const closed = (status: number, code: string) => (request: FakeRequest) =>
    isHead(request) ? { status, headers: { "x-error-code": code } } : null;

  it("goes to the hub and to no other host", async () => {
    hub.accounts.set("me", "hf_secret");
    rig.put({ [file]: bytes });
    await rig.assertFetched(bytes, repo, { tokenSource: "literal:hf_secret" });
    const seen = (host: string) =>
      new Set(hub.requests.filter((one) => one.host === host).map((one) => one.authorization));
    assert.deepEqual([...seen("hub")], ["Bearer hf_secret"]);
    assert.deepEqual([...seen("cdn")], [undefined]);
  });

  it("is required if a model is gated, and is never shown", async () => {
    hub.accounts.set("me", "hf_secret");
    rig.put({ [file]: bytes });
    await rig.assertRefused(
      repo,
      "model_source_unreachable",
      /not a model on the hub, or is private; .* troupe login, or set HF_TOKEN$/,
    );
    for (const tokenSource of ["literal:hf_wrong", "env:OTHER"]) {
      await assert.rejects(
        rig.resolve(repo, { tokenSource, environment: { ...rig.environment, OTHER: "hf_wrong" } }),
        ({ message }: Error) => /^the hub refuses the token for "acme/.test(message) && !message.includes("hf_wrong"),
      );
    }
  });

  it("is not enough if a licence must be accepted", async () => {
    rig.put({ [file]: bytes });
    hub.fault = closed(403, "GatedRepo");
    await rig.assertRefused(
      repo,
      "model_source_unreachable",
      /is gated: accept its licence at http.*acme\/tiny-GGUF, then run troupe login/,
    );
    hub.fault = closed(401, "GatedRepo");
    await rig.assertRefused(repo, "model_source_unreachable", /is gated: .* then use a token of that account$/, {
      tokenSource: "literal:hf_x",
    });
    hub.fault = closed(403, "");
    await rig.assertRefused(repo, "model_source_unreachable", /^the hub does not allow access to "acme/);
  });

  it("is not needed offline, but a wrong source of it is always reported", async () => {
    await rig.assertRefused(repo, "config_invalid", /^the variable NONE that token_source names is empty or not set/, {
      tokenSource: "env:NONE",
    });
    assert.deepEqual(hub.requests, []);
  });
});
