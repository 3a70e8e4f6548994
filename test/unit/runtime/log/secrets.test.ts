import assert from "node:assert/strict";
import { describe, it } from "node:test";
import fc from "fast-check";
import { withoutSecrets } from "../../../../runtime/log/secrets.ts";

const struck = "[redacted]";

describe("withoutSecrets", () => {
  it("removes the values of secret keys in JSON, at any depth", () => {
    const secrets = {
      Authorization: 'Bearer \\"hush\\\\',
      "x-api-key": "hush",
      nested: [{ api_key: "hush", password: "" }],
    };
    const kept = { Authorization: struck, "x-api-key": struck };
    assert.deepEqual(JSON.parse(withoutSecrets(JSON.stringify({ secrets, note: "token" }))), {
      secrets: { ...kept, nested: [{ api_key: struck, password: struck }] },
      note: "token",
    });
  });

  it("finds a secret by the end of its key, and removes lists of secrets", () => {
    for (const key of ["access_token", "HF-Token", "client_secret", "accessToken", "db_password", "OPENAI_API_KEY"]) {
      assert.equal(withoutSecrets(`{"${key}" : "hush"}`), `{"${key}" : "${struck}"}`);
    }
    assert.equal(withoutSecrets('{"token":["a" , "b"],"c":["d"]}'), `{"token":["${struck}" , "${struck}"],"c":["d"]}`);
  });

  it("keeps a model's tokens, token counts, and texts about secrets", () => {
    const kept = JSON.stringify({
      logprobs: [{ token: "hush", logprob: -1, bytes: [1] }],
      content: 'the "token": "hush" is in here',
      properties: { token: { type: "string" } },
      usage: { max_tokens: 5, prompt_tokens: 7, max_completion_tokens: "8", token: 9 },
      chat_template_kwargs: { bos_token: "<s>" },
    });
    assert.equal(withoutSecrets(kept), kept);
  });

  it("removes secrets in JSON inside strings of JSON, at every depth", () => {
    const secret = fc.constantFrom("sk-1", 'q"uo\\te', "\\", '"', "\n", "");
    fc.assert(
      fc.property(secret, fc.nat(3), fc.boolean(), (value, depth, isPretty) => {
        const around = (inner: unknown) => JSON.stringify(inner, null, isPretty ? 2 : 0);
        const wrap = (found: string) => {
          let text = around({ n: 1, api_key: found, after: "kept" });
          for (let i = 0; i < depth; i++) text = around({ arguments: text, name: "call" });
          return text;
        };
        assert.equal(withoutSecrets(wrap(value)), wrap(struck));
      }),
    );
  });

  it("removes a secret that is cut off, by the end or by the enclosing string", () => {
    assert.equal(withoutSecrets('{"a":1,"token":"hus'), `{"a":1,"token":"${struck}"`);
    assert.equal(withoutSecrets('{"token":"hush\\'), `{"token":"${struck}"`);
    const cut = JSON.stringify({ arguments: '{"token":"hus', next: 1 });
    assert.deepEqual(JSON.parse(withoutSecrets(cut)), { arguments: `{"token":"${struck}"`, next: 1 });
  });

  it("takes linear time on a hostile text", () => {
    const hostile = [
      '"token":"'.repeat(200_000),
      `"token":"${"x".repeat(2_000_000)}","logprob"`,
      `"token":"${"\\a".repeat(1_000_000)}`,
      `"token"${" ".repeat(2_000_000)}`,
      `"token":"x"${" ".repeat(2_000_000)}`,
      "\\".repeat(2_000_000),
      '\\"token\\":\\"'.repeat(100_000),
      `"token":[${'"a",'.repeat(300_000)}`,
      `"token":"x"${" ".repeat(2000)}`.repeat(500),
    ];
    const started = performance.now();
    for (const text of hostile) withoutSecrets(text);
    assert.ok(performance.now() - started < 1500);
  });
});
