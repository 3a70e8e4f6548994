// Command line with a scripted model: `node scripted-cli.js agent "TASK" …`. Everything else is real. The variable SCRIPT
// names a JSON file with the output of each round. SEEN names a file to which the chat of each round is appended as a line of
// JSON.
import { appendFileSync, readFileSync } from "node:fs";
import { parseArguments } from "../../../cli/arguments.ts";
import { resolveConfig } from "../../../cli/config/config.ts";
import { run } from "../../../cli/run/run.ts";
import type { GenerateRequest } from "../../../engines/generation.ts";
import { ServerError } from "../../../runtime/errors.ts";
import { begin, done, FakeInference, finish, type Step, text } from "../../fixtures/fakes/fake-inference.ts";
import { chatOf, eventsOf, type Turn } from "../agents/rig.ts";

/** Output of a round. `slow`: words that are sent at intervals of 20 ms. */
export type ScriptedTurn = Turn | { readonly slow: readonly string[] };

const turns = JSON.parse(readFileSync(process.env.SCRIPT ?? "", "utf8")) as ScriptedTurn[];
let round = 0;

function script(request: GenerateRequest): Iterable<Step> {
  const tools = request.tools?.specs.map(({ name }) => name) ?? [];
  appendFileSync(process.env.SEEN ?? "", `${JSON.stringify({ messages: chatOf(request).messages, tools })}\n`);
  const turn = turns[round++] ?? "end";
  if (typeof turn === "string" || !("slow" in turn)) return [eventsOf(turn, round)];
  const words = turn.slow.flatMap((word): Step[] => [[text(word)], { waitMs: 20 }]);
  return [[begin()], ...words, [finish(), done]];
}

try {
  const { flags } = parseArguments(process.argv.slice(2));
  const config = resolveConfig({ command: "run", flags, environment: {}, defaultModel: "scripted" });
  await run(config, async () => ({
    inference: new FakeInference(script),
    defaults: new Map(),
    start: async () => {},
    stop: async () => {},
  }));
} catch (error) {
  if (!(error instanceof ServerError)) throw error;
  process.stderr.write(`troupe: ${error.message}\n`);
  process.exit(error.code === "config_invalid" ? 2 : 1);
}
