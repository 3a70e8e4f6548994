// Damaged adapter files: truncated, lengthened, or with changed bytes. Each must be accepted completely or rejected with a
// specific error.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { before, describe, it } from "node:test";
import fc from "fast-check";
import { parsePeftConfig } from "../../../../engines/files/lora/peft/peft-config.ts";
import { prepareAdapter } from "../../../../engines/files/lora/prepare.ts";
import { readSafetensors } from "../../../../engines/files/lora/safetensors.ts";
import { ServerError } from "../../../../runtime/errors.ts";
import { writeGgufAdapter, writePeftAdapter } from "../../../fixtures/lora/lora.ts";
import { optionsFor, temporaryFolder, writeSmallModel } from "../../../fixtures/lora/lora-prepared.ts";
import { encodeHeader } from "../../../fixtures/lora/lora-safetensors.ts";

const folder = temporaryFolder();
const modelPath = join(folder, "model.gguf");
const options = optionsFor(modelPath, join(folder, "prepared"));
const peft = join(folder, "peft");
const weights = join(peft, "adapter_model.safetensors");
const gguf = join(folder, "adapter.gguf");
before(async () => {
  await writeSmallModel(modelPath);
  await writePeftAdapter(peft, { modelPath, seed: 1, rank: 2, targets: ["q_proj", "up_proj"] });
  await writeGgufAdapter(gguf, { modelPath, seed: 1, rank: 2, targets: ["q_proj", "up_proj"] });
});

function fileOf(bytes: Buffer): Parameters<typeof readSafetensors>[0] {
  return { name: "the file", size: bytes.length, read: async (into, position) => void bytes.copy(into, 0, position) };
}

async function isRefused(task: Promise<unknown>): Promise<boolean> {
  try {
    await task;
    return false;
  } catch (error) {
    assert.ok(error instanceof ServerError && error.code === "invalid_lora_adapter", String(error));
    return true;
  }
}

describe("a damaged safetensors file", () => {
  it("is rejected wherever it is truncated, and if it is too long", async () => {
    const whole = readFileSync(weights);
    assert.equal((await readSafetensors(fileOf(whole))).length, 4);
    for (let length = 0; length < whole.length; length++) {
      assert.ok(await isRefused(readSafetensors(fileOf(whole.subarray(0, length)))), `cut off at ${length}`);
    }
    assert.ok(await isRefused(readSafetensors(fileOf(Buffer.concat([whole, Buffer.alloc(1)])))));
  });

  it("is refused where its tensors overlap, leave room, or lie outside", async () => {
    const head = (...spans: (readonly unknown[])[]): Buffer => {
      const entries = spans.map((span, i) => [`t${i}`, { dtype: "F32", shape: [1], data_offsets: span }]);
      return Buffer.concat([encodeHeader(JSON.stringify(Object.fromEntries(entries))), Buffer.alloc(8)]);
    };
    assert.equal((await readSafetensors(fileOf(head([4, 8], [0, 4])))).length, 2);
    const wrong = [
      ...[head([0, 4], [3, 8]), head([0, 4], [0, 8]), head([0, 3], [4, 8]), head([0, 4]), head([0, 4], [4, 12])],
      ...[head([4, 0], [4, 8]), head([0, 2 ** 60]), head([-4, 8]), head([0, 1.5]), head(["0", 8]), head([0, 4, 8])],
    ];
    for (const file of wrong) assert.ok(await isRefused(readSafetensors(fileOf(file))), file.toString());
  });

  it("is rejected if its header is not an object of tensors", async () => {
    for (const json of [
      "",
      "[]",
      "7",
      "null",
      '{"a":',
      '{"a":null}',
      '{"a":{"dtype":1,"shape":[],"data_offsets":[0,0]}}',
    ]) {
      assert.ok(await isRefused(readSafetensors(fileOf(encodeHeader(json)))), json);
    }
    assert.ok(
      await isRefused(
        readSafetensors(fileOf(Buffer.concat([encodeHeader("{}").subarray(0, 8), Buffer.alloc(8, 0xff)]))),
      ),
    );
    const claims = Buffer.alloc(16);
    claims.writeBigUInt64LE(2n ** 63n);
    assert.ok(await isRefused(readSafetensors(fileOf(claims))));
  });

  it("is accepted or rejected with a specific error, whatever bytes of its header change", async () => {
    const whole = readFileSync(weights);
    const headBytes = 8 + Number(whole.readBigUInt64LE());
    let refused = 0;
    const check = async (changes: readonly (readonly [number, number])[]): Promise<void> => {
      const bytes = Buffer.from(whole);
      for (const [at, value] of changes) bytes[at % headBytes] = value;
      if (await isRefused(readSafetensors(fileOf(bytes)))) refused++;
    };
    const change = fc.tuple(fc.nat(headBytes), fc.nat(255));
    await fc.assert(fc.asyncProperty(fc.array(change, { minLength: 1, maxLength: 4 }), check), { numRuns: 2000 });
    assert.ok(refused > 1000, `${refused} of 2000 were refused`);
  });

  it("is refused as an adapter, too", async () => {
    const whole = readFileSync(weights);
    for (const length of [0, 8, 100, whole.length - 1]) {
      writeFileSync(weights, whole.subarray(0, length));
      assert.ok(await isRefused(prepareAdapter({ ...options, source: peft })));
    }
    writeFileSync(weights, whole);
    await prepareAdapter({ ...options, source: peft });
  });
});

describe("a damaged GGUF adapter", () => {
  it("is refused wherever it is cut off", async () => {
    const whole = readFileSync(gguf);
    await prepareAdapter({ ...options, source: gguf });
    const cut = join(folder, "cut.gguf");
    for (let length = 0; length < whole.length - 32; length += 151) {
      writeFileSync(cut, whole.subarray(0, length));
      assert.ok(await isRefused(prepareAdapter({ ...options, source: cut })), `cut off at ${length}`);
    }
  });

  it("is accepted or rejected with a specific error, whatever bytes of its header change", async () => {
    const whole = readFileSync(gguf);
    const changed = join(folder, "changed.gguf");
    const check = async (at: number, value: number): Promise<void> => {
      const bytes = Buffer.from(whole);
      bytes[at] = value;
      writeFileSync(changed, bytes);
      await isRefused(prepareAdapter({ ...options, source: changed }));
    };
    await fc.assert(fc.asyncProperty(fc.nat(700), fc.nat(255), check), { numRuns: 100 });
  });
});

describe("a damaged adapter_config.json", () => {
  const whole = () => readFileSync(join(peft, "adapter_config.json"));

  it("is refused wherever it is cut off", async () => {
    for (let length = 0; length < whole().length; length++) {
      assert.ok(await isRefused((async () => parsePeftConfig(whole().subarray(0, length)))()));
    }
  });

  it("is accepted or rejected with a specific error, whatever JSON it is", async () => {
    const fields = fc.record(
      {
        peft_type: fc.constant("LORA"),
        r: fc.oneof(fc.constant(8), fc.jsonValue()),
        lora_alpha: fc.oneof(fc.constant(8), fc.jsonValue()),
        rank_pattern: fc.oneof(fc.dictionary(fc.string(), fc.nat()), fc.jsonValue()),
        alpha_pattern: fc.oneof(fc.dictionary(fc.string(), fc.double()), fc.jsonValue()),
      },
      { requiredKeys: ["peft_type"] },
    );
    const check = async (value: unknown): Promise<void> => {
      await isRefused((async () => parsePeftConfig(Buffer.from(JSON.stringify(value))).scaleOf("model.layers.0.x"))());
    };
    await fc.assert(fc.asyncProperty(fc.oneof(fields, fc.jsonValue()), check), { numRuns: 1000 });
  });

  it("cannot keep the server busy with its expressions", async () => {
    const hostile = ["(a+)+b", "(.*)*(.*)*(.*)*x", "((((a{1,900}){1,900}){1,900}){1,900})", "(a|a?)+".repeat(200)];
    const started = performance.now();
    for (const pattern of hostile) {
      const config = { peft_type: "LORA", r: 1, lora_alpha: 1, rank_pattern: { [pattern]: 1 } };
      await isRefused((async () => parsePeftConfig(Buffer.from(JSON.stringify(config))).rankOf("a".repeat(10_000)))());
    }
    assert.ok(performance.now() - started < 2000);
  });
});
