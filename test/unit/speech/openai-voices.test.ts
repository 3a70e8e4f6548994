import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { openaiVoice } from "../../../actors/api/speech/openai-voices.ts";

const voicesOf = (ids: Readonly<Record<string, string>>) =>
  Object.entries(ids).map(([id, language]) => ({ id, language }));

describe("a voice of OpenAI", () => {
  it("stands for a voice of the same name, or for another of the first voice's language", () => {
    const kokoro = voicesOf({
      af_heart: "en-us",
      am_onyx: "en-us",
      bm_fable: "en-gb",
      ff_siwis: "fr-fr",
      zm_echo: "zh",
    });
    assert.equal(openaiVoice("onyx", kokoro)?.id, "am_onyx");
    assert.equal(openaiVoice("fable", kokoro)?.id, "bm_fable");
    assert.ok(openaiVoice("echo", kokoro)?.language.startsWith("en"));
    const espeak = voicesOf({ "en-us": "en-us", af: "af", am: "am", "en-gb": "en-gb" });
    for (const name of ["alloy", "ash", "coral", "nova"]) {
      assert.ok(openaiVoice(name, espeak)?.language.startsWith("en"), name);
    }
  });

  it("does not exist with other names", () => {
    assert.equal(openaiVoice("bob", voicesOf({ af_heart: "en-us" })), null);
  });
});
