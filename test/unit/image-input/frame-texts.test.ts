// Frame texts: what a prompt says about the times of a video's frames. The expected texts are those of transformers' processors
// (SmolVLMProcessor, Qwen3VLProcessor, Gemma4Processor, InternVLProcessor; version 5.24).
import assert from "node:assert/strict";
import { it } from "node:test";
import { frameTexts } from "../../../engines/image-input/video/frame-texts.ts";

const times = [0, 2.49, 75.5];

it("the texts around a video's frames are those of the model's training", () => {
  assert.deepEqual(frameTexts("qwen3vl_merger", times), {
    before: ["<0.0 seconds>", "<2.5 seconds>", "<75.5 seconds>"],
    after: "",
  });
  assert.deepEqual(frameTexts("gemma4v", times), { before: ["00:00 ", " 00:02 ", " 01:15 "], after: "" });
  assert.deepEqual(frameTexts("internvl", times), { before: ["Frame1: ", "\nFrame2: ", "\nFrame3: "], after: "" });
  const introduction = "You are provided the following series of three frames from a 0:01:15 [H:MM:SS] video.\n";
  assert.deepEqual(frameTexts("idefics3", times), {
    before: [`${introduction}\nFrame from 00:00:`, "\nFrame from 00:02:", "\nFrame from 01:15:"],
    after: "\n\n",
  });
  assert.deepEqual(frameTexts("gemma3", times), { before: ["", "", ""], after: "" });
});

it("SmolVLM's introduction has the number of frames in words, and the length of hours", () => {
  const introductionOf = (frames: number) =>
    frameTexts(
      "idefics3",
      Array.from({ length: frames }, (_, i) => i * 60),
    ).before[0];
  assert.match(introductionOf(16) ?? "", /series of sixteen frames from a 0:15:00/);
  assert.match(introductionOf(40) ?? "", /series of forty frames/);
  assert.match(introductionOf(128) ?? "", /series of one hundred and twenty-eight frames/);
  assert.match(introductionOf(200) ?? "", /series of two hundred frames/);
  assert.match(introductionOf(64) ?? "", /series of sixty-four frames from a 1:03:00/);
});
