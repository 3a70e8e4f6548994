// Child process of model-trials.ts: loads damaged models one after another, and prints each outcome as a JSON line. A crash in native
// code ends this process only.
//
// Arguments: folder for the models, kind of the models, seed, number of the first mutant, number of mutants.
import { writeFileSync } from "node:fs";
import { ServerError } from "../../runtime/errors.ts";
import { type ModelKind, modelSources } from "../../test/fixtures/mutants/model-sources.ts";
import { diceOf, mutantOf } from "../../test/fixtures/mutants/mutate.ts";
import { judged, type Outcome } from "./outcome.ts";

const [folder = "", kind = "", seed = "0", first = "0", count = "0"] = process.argv.slice(2);
const models = await modelSources(kind as ModelKind, folder);
// The undamaged models must work; otherwise the mutants of one of them would all be rejected for another reason.
for (const { use } of models) await use();
for (let number = Number(first); number < Number(first) + Number(count); number++) {
  const dice = diceOf(Number(seed), number);
  const { files, use } = dice.pick(models);
  const { name, bytes, source } = mutantOf(files, dice);
  writeFileSync(source.path, bytes);
  const beginMs = performance.now();
  const verdict = await verdictOf(use);
  writeFileSync(source.path, source.bytes);
  const outcome: Outcome = { number, name, ...verdict, ms: performance.now() - beginMs };
  process.stdout.write(`${JSON.stringify(outcome)}\n`);
}

async function verdictOf(use: () => Promise<void>): Promise<Pick<Outcome, "result" | "detail">> {
  try {
    await use();
    return { result: "read", detail: "" };
  } catch (error) {
    if (error instanceof ServerError) return judged(kind as ModelKind, error.code, error.message);
    return { result: "broken", detail: `an error without a name: ${error instanceof Error ? error.stack : error}` };
  }
}
