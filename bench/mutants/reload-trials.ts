// Trials of damaged models in a running server: a model is reloaded from a damaged file and gets a request. The other models must still
// respond. When the file is restored, the model must load and respond again.
import { readFileSync, writeFileSync } from "node:fs";
import { basename } from "node:path";
import { gguf, json, onnx } from "../../test/fixtures/mutants/model-formats.ts";
import { diceOf, mutantOf, type Source } from "../../test/fixtures/mutants/mutate.ts";
import { blackPng, silentWav } from "../../test/fixtures/mutants/oversized-files.ts";
import type { Alias, Answer, MediaServer } from "./media-server.ts";
import type { Outcome, Trials } from "./outcome.ts";

const aliases: readonly Alias[] = ["image", "audio", "whisper"];

export async function runReloads(
  { seed, first, count }: Trials,
  server: MediaServer,
  tell: (outcome: Outcome) => void,
): Promise<void> {
  const picture = await blackPng(64, 64, "rgb8");
  const ask = (alias: Alias): Promise<Answer> => {
    if (alias === "image") return server.sendImages([picture]);
    return alias === "audio" ? server.sendAudio(silentWav(2)) : server.transcribe(silentWav(2));
  };
  const sources = new Map(aliases.map((alias) => [alias, server.files[alias].map(sourceOf)]));
  for (let number = first; number < first + count; number++) {
    const dice = diceOf(seed, number);
    const alias = dice.pick(aliases);
    const { name, bytes, source } = mutantOf(sources.get(alias) ?? [], dice);
    writeFileSync(source.path, bytes);
    const beginMs = performance.now();
    const loaded = await server.reload(alias);
    const used = await ask(alias);
    const others = await Promise.all(aliases.filter((other) => other !== alias).map(ask));
    writeFileSync(source.path, source.bytes);
    const whole = [await server.reload(alias), await ask(alias)];
    const healthy = [...others, ...whole].find(({ status }) => status !== 200);
    const refusal = [loaded, used].find(({ status }) => status !== 200);
    const isNameless = refusal !== undefined && (refusal.code === "internal" || refusal.message === "");
    const flaw = healthy ?? (isNameless ? refusal : undefined);
    tell({
      number,
      name,
      result: flaw !== undefined ? "broken" : refusal === undefined ? "read" : "refused",
      detail: JSON.stringify(flaw ?? refusal ?? ""),
      ms: performance.now() - beginMs,
    });
  }
}

function sourceOf(path: string): Source & { readonly path: string } {
  const name = basename(path);
  const format = path.endsWith(".gguf") ? gguf : path.endsWith(".json") ? json : onnx;
  return { name, path, format, bytes: readFileSync(path) };
}
