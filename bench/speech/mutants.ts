// Damaged files for `bench speech`: audio files and ONNX models with changed bytes. Each is read by the real code; a crash ends the
// program that this module is, so `main.ts` runs it as a child process and counts.
//
// Arguments: `audio` or `model`, the path of the file to damage, the first seed, the number of mutants.
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { loadOnnx, openSession } from "../../engines/onnx/onnx.ts";
import { decodeAudio } from "../../engines/speech/audio/decode.ts";
import { ServerError } from "../../runtime/errors.ts";

const [kind = "", source = "", first = "0", count = "0"] = process.argv.slice(2);
const original = readFileSync(source);
const folder = mkdtempSync(join(tmpdir(), "troupe-mutants-"));
const counts = { read: 0, refused: 0, unnamed: 0 };
for (let seed = Number(first); seed < Number(first) + Number(count); seed++) {
  const path = join(folder, `mutant-${seed}`);
  writeFileSync(path, mutant(seed));
  try {
    if (kind === "audio") await decodeAudio(path, 60, new AbortController().signal);
    else await (await openSession(await loadOnnx(), path, 1)).release();
    counts.read++;
  } catch (error) {
    if (error instanceof ServerError && error.code !== "internal") counts.refused++;
    else counts.unnamed++;
  }
  rmSync(path);
}
rmSync(folder, { recursive: true });
process.stdout.write(JSON.stringify(counts));

/** Returns the file with changed, removed or repeated bytes, most of them near its beginning. */
function mutant(seed: number): Uint8Array {
  let state = (seed + 1) * 2_654_435_761;
  const random = (below: number): number => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const bytes = Buffer.from(original);
  const reach = random(2) === 0 ? Math.min(bytes.length, 512) : bytes.length;
  const changes = 1 + random(24);
  for (let i = 0; i < changes; i++) bytes[random(reach)] = random(256);
  const cut = random(4);
  if (cut === 0) return bytes.subarray(0, random(bytes.length));
  if (cut === 1) return Buffer.concat([bytes.subarray(0, reach), bytes.subarray(random(reach))]);
  return bytes;
}
