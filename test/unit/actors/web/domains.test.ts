// Domain rules: which URLs pass the allowed and blocked domains of a request.
import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { allowsUrl } from "../../../../actors/web/domains.ts";

const allows = (url: string, allowedDomains: readonly string[], blockedDomains: readonly string[] = []): boolean =>
  allowsUrl({ allowedDomains, blockedDomains }, new URL(url));

describe("domain rules", () => {
  it("include subdomains, and nothing that only looks like one", () => {
    assert.equal(allows("https://docs.example.com/a", ["example.com"]), true);
    assert.equal(allows("https://EXAMPLE.com./", ["example.com"]), true);
    for (const url of ["https://notexample.com/", "https://example.com.evil.test/", "https://evil.test/example.com"]) {
      assert.equal(allows(url, ["example.com"]), false, url);
    }
  });

  it("may have a scheme, a wildcard, a path or letters of other scripts", () => {
    assert.equal(allows("https://a.example.com/x", ["https://*.example.com"]), true);
    assert.equal(allows("https://a.example.com/x", ["*.example.com"]), true);
    assert.equal(allows("https://example.com/docs/a", ["example.com/docs"]), true);
    assert.equal(allows("https://example.com/docs/a", ["example.com/docs/*"]), true);
    assert.equal(allows("https://example.com/docsearch", ["example.com/docs"]), false);
    assert.equal(allows("https://xn--bcher-kva.example/", ["bücher.example"]), true);
  });

  it("block what is blocked, even if it is allowed too", () => {
    assert.equal(allows("https://ads.example.com/", ["example.com"], ["ads.example.com"]), false);
    assert.equal(allows("https://www.example.com/", [], ["other.test"]), true);
  });
});
