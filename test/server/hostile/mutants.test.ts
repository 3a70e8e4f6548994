// Mutants: short version of `bench mutants`. Damaged images, audio files, videos and models are decoded or rejected with a
// specific error, directly and over HTTP.
import assert from "node:assert/strict";
import { after, before, describe, it, type TestContext } from "node:test";
import { MediaServer } from "../../../bench/mutants/media-server.ts";
import { runMedia } from "../../../bench/mutants/media-trials.ts";
import { runModels } from "../../../bench/mutants/model-trials.ts";
import type { Kind, MediaKind, Outcome } from "../../../bench/mutants/outcome.ts";
import { quickFiles, runOversized } from "../../../bench/mutants/oversized-files.ts";

const seed = 2;
/** One of this many mutants is also sent to a server. */
const every = 20;

/** Asserts that no mutant has caused a violation, and that most files are damaged enough to be rejected. */
function check(kind: Kind, outcomes: readonly Outcome[], test: TestContext): void {
  const of = (result: Outcome["result"]) => outcomes.filter((outcome) => outcome.result === result);
  const replay = `npm run bench -- mutants --seed ${seed} --kind ${kind} --count 1 --first`;
  test.diagnostic(
    `seed ${seed}: ${of("read").length} read, ${of("refused").length} refused, ${of("ended").length} ended`,
  );
  assert.deepEqual(
    of("broken").map(({ number, name, detail }) => `${name}: ${detail}; replay: ${replay} ${number}`),
    [],
  );
  assert.ok(of("refused").length > outcomes.length / 5, `${of("refused").length} of ${outcomes.length} were refused`);
}

describe("damaged media", () => {
  let server: MediaServer;
  before(async () => {
    server = await MediaServer.start();
  });
  after(() => server.stop());

  const counts: Readonly<Record<MediaKind, number>> = { images: 100, audio: 100, video: 10 };
  for (const [kind, count] of Object.entries(counts) as [MediaKind, number][]) {
    it(`${count} of ${kind} are read, or refused by name`, async (test) => {
      const outcomes: Outcome[] = [];
      await runMedia(kind, { seed, first: 0, count }, { server, every }, (outcome) => outcomes.push(outcome));
      assert.equal(outcomes.length, count);
      check(kind, outcomes, test);
    });
  }

  for (const special of quickFiles) {
    it(`${special.name}: ${special.refusal === null ? "read" : "refused"}`, async () => {
      const { holds, answer } = await runOversized(special, server);
      assert.ok(holds, `${answer.status} ${answer.message}`);
    });
  }

  it("end neither the server nor the processes of its models", () => {
    assert.deepEqual([server.hasEnded, server.restarts], [false, 0]);
  });
});

describe("damaged models", () => {
  for (const [kind, count] of [
    ["onnx", 200],
    ["mmproj", 200],
  ] as const) {
    it(`${count} of ${kind} work, are refused by name, or end the process that loads them`, async (test) => {
      const outcomes: Outcome[] = [];
      await runModels(kind, { seed, first: 0, count }, (outcome) => outcomes.push(outcome));
      assert.equal(outcomes.length, count);
      check(kind, outcomes, test);
    });
  }
});
