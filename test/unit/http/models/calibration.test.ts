import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { createApp } from "../../../../http/app.ts";
import { calibrationSchema } from "../../../../http/calibration/operation.ts";
import { FakeInference } from "../../../fixtures/fakes/fake-inference.ts";
import { FakeModels } from "../../../fixtures/fakes/fake-models.ts";
import { request } from "../../../fixtures/fakes/socketless.ts";
import { recordingLog } from "../../../fixtures/http-server.ts";

function setUp() {
  const inference = new FakeInference();
  const models = new FakeModels(inference);
  const app = createApp({ inference, models, log: recordingLog() });
  const send = async (method: string, path: string, body?: unknown) => {
    const [name = "", query = ""] = path.split("?");
    const reply = await request(app, method, name, { query, ...(body === undefined ? {} : { body }) });
    return { status: reply.status, text: reply.body, json: () => JSON.parse(reply.body) };
  };
  return { inference, models, send };
}

describe("calibration routes", () => {
  it("start, show and apply a calibration, with or without a body", async () => {
    const { models, send } = setUp();
    models.calibration = {
      isCollecting: true,
      layers: 14,
      layersTracking: 14,
      totalRows: 28,
      minRows: 2,
      maxRows: 2,
    };
    const expected = { collecting: true, layers: 14, layers_tracking: 14, total_rows: 28, min_rows: 2, max_rows: 2 };
    const replies = [
      await send("POST", "/calibration/start"),
      await send("POST", "/calibration/start", { model: "other" }),
      await send("GET", "/calibration/status"),
      await send("GET", "/calibration/status?model=other"),
      await send("POST", "/calibration/apply"),
      await send("POST", "/calibration/apply", { save_cimatrix: "traffic.cimatrix" }),
    ];
    for (const { status, text, json } of replies) {
      assert.equal(status, 200, text);
      assert.deepEqual(calibrationSchema.parse(json()), expected);
    }
    const asked = ["calibrate tiny", "calibrate other", "apply tiny null", "apply tiny traffic.cimatrix"];
    assert.deepEqual(models.asked, asked);
  });

  it("accept only a file name and known models", async () => {
    const { models, send } = setUp();
    for (const name of ["../x.gguf", "/etc/x", "a/b.gguf", ".hidden", "", "a\\b", "x".repeat(300)]) {
      const { status, json } = await send("POST", "/calibration/apply", { save_cimatrix: name });
      assert.deepEqual([status, json().error.param], [400, "save_cimatrix"], name);
    }
    assert.equal((await send("GET", "/calibration/status?model=nobody")).status, 404);
    assert.deepEqual(models.asked, []);
  });
});

describe("POST /re_isq", () => {
  it("returns the level", async () => {
    const { models, send } = setUp();
    const { status, text } = await send("POST", "/re_isq", { ggml_type: "Q4K" });
    assert.deepEqual([status, text], [200, 'Re ISQ: "Q4K"']);
    assert.equal((await send("POST", "/re_isq", { ggml_type: "Q8_0", model: "other" })).status, 200);
    assert.deepEqual(models.asked, ["requantize tiny Q4K", "requantize other Q8_0"]);
    assert.equal((await send("POST", "/re_isq", {})).json().error.param, "ggml_type");
  });

  it("shows its progress in the model's entry", async () => {
    const { inference, send } = setUp();
    const [tiny, other] = inference.entries;
    const requantization = { level: "Q4_K", status: "failed", progress: 0.5, error: "no room" } as const;
    inference.entries = [{ ...tiny!, requantization }, other!];
    const shown = (await send("GET", "/v1/models/tiny")).json().requantization;
    assert.deepEqual(shown, { ggml_type: "Q4_K", status: "failed", progress: 0.5, error: "no room" });
  });
});
