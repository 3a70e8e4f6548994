// Speed of quantizing a whole file, compared with llama.cpp's quantizer on the same number of threads. Our time includes reading, worker
// threads and writing.
import { mkdtemp, rm, stat } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { median, table } from "../../cli/bench/report.ts";
import { readTensorTable } from "../../engines/files/gguf/tensors.ts";
import { quantizeFile } from "../../engines/llama/native/quantizer.ts";
import { convert, planConversion } from "../../engines/quantization/conversion/conversion.ts";
import { openGgufSource } from "../../engines/quantization/conversion/model-source.ts";
import { withQuantizationSource } from "../../test/fixtures/gguf/quantize.ts";
import { report } from "../results.ts";

/** llama.cpp's numbers for the file types. */
const fileTypes = { Q4_0: 2, Q8_0: 7, Q4_K: 14 } as const;
const threads = 2;
const mega = 1e6;

export async function compareFiles(rounds: number, save: boolean): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "troupe-files-"));
  const rows: string[][] = [];
  try {
    // The source is the padded model (the model with zeros added around its matrices) in F16, because its row lengths suit the
    // blocks of all three types.
    await withQuantizationSource("Q4_K", async (source) => {
      for (const type of Object.keys(fileTypes) as (keyof typeof fileTypes)[]) {
        process.stderr.write(`${type} ...\n`);
        rows.push(await compare(source, type, folder, rounds));
      }
    });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  report(
    {
      name: `quantize-files-node${process.versions.node.split(".")[0]}`,
      title: "Quantizing a whole file, over llama.cpp's quantizer",
      method:
        `The default model with zeros around its matrices, F16, ${threads} threads, ${rounds} rounds in turns, medians (of ` +
        "paired ratios). MB of the source per second. Both files have the same type for each tensor. Ours starts its threads each " +
        "time and puts the file on the disk before it ends; llama.cpp does not wait for the disk.",
      body: table(["type", "ours", "llama.cpp", "ours over llama.cpp"], rows),
    },
    save,
  );
}

async function compare(
  source: string,
  type: keyof typeof fileTypes,
  folder: string,
  rounds: number,
): Promise<string[]> {
  const [ours, theirs] = [join(folder, "ours.gguf"), join(folder, "theirs.gguf")];
  const llama = () => quantizeFile(source, theirs, { fileType: fileTypes[type], threads, pure: true });
  await llama();
  const { tensors } = await readTensorTable(theirs);
  const types = new Map([...tensors].map(([name, tensor]) => [name, tensor.type]));
  const troupe = async () => {
    const plan = { source: await openGgufSource(source), types, importance: new Map(), fileType: null };
    await convert(await planConversion(plan), { target: ours, threads });
  };
  await troupe();
  const megabytes = (await stat(source)).size / mega;
  const seconds: { ours: number; theirs: number }[] = [];
  for (let round = 0; round < rounds; round++) {
    seconds.push({ theirs: await secondsOf(llama), ours: await secondsOf(troupe) });
  }
  const rate = (one: readonly number[]) => (megabytes / median(one)).toFixed(0);
  const ratio = median(seconds.map((one) => one.theirs / one.ours));
  return [type, rate(seconds.map((one) => one.ours)), rate(seconds.map((one) => one.theirs)), ratio.toFixed(2)];
}

async function secondsOf(work: () => Promise<void>): Promise<number> {
  const start = performance.now();
  await work();
  return (performance.now() - start) / 1000;
}
