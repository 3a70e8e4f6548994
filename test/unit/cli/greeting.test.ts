import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type Greeted, greeting } from "../../../cli/greeting.ts";

const server = { host: "127.0.0.1", port: 1234, mcpPort: null, hasUi: false, defaultModelId: "m", modelIds: ["m"] };

function textFor(model: Omit<Greeted["models"][number], "id" | "capabilities">): string {
  return greeting({ ...server, models: [{ id: "m", capabilities: null, ...model }] });
}

describe("the greeting of the server", () => {
  it("has the endpoints of the kinds of models that are served, before their first load too", () => {
    assert.match(textFor({}), /v1\/chat\/completions/);
    assert.doesNotMatch(textFor({}), /audio|images/);
    const speech = textFor({ speech: { task: "speak", engine: "piper" } });
    assert.match(speech, /curl -o hello\.wav http:\/\/127\.0\.0\.1:1234\/v1\/audio\/speech/);
    assert.doesNotMatch(speech, /chat|transcriptions/);
    assert.match(textFor({ speech: { task: "transcribe", engine: "whisper" } }), /v1\/audio\/transcriptions/);
    const images = textFor({ isDiffusion: true });
    assert.match(images, /curl http:\/\/127\.0\.0\.1:1234\/v1\/images\/generations/);
    assert.doesNotMatch(images, /chat/);
  });
});
