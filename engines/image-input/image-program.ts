// Image program: common code of the programs that decode an image in a separate process. They read the encoded image from stdin and write
// to stdout a line of JSON (the header), then the bytes of all parts (tiles or frames).
import type sharp from "sharp";

interface Output<Head> {
  readonly head: Head;
  readonly parts: readonly Buffer[];
}

/** Runs the program. An error ends it with exit code 1 and the message on stderr. */
export function runImageProgram<Head>(decode: (library: typeof sharp, image: Buffer) => Promise<Output<Head>>): void {
  run(decode).catch((error: Error) => {
    process.stderr.write(error.message);
    process.exitCode = 1;
  });
}

async function run<Head>(decode: (library: typeof sharp, image: Buffer) => Promise<Output<Head>>): Promise<void> {
  const chunks: Buffer[] = [];
  for await (const chunk of process.stdin) chunks.push(chunk as Buffer);
  const { default: library } = await import("sharp");
  library.cache(false);
  library.concurrency(1);
  const { head, parts } = await decode(library, Buffer.concat(chunks));
  process.stdout.write(`${JSON.stringify(head)}\n`);
  process.stdout.write(Buffer.concat(parts));
}

/** Splits the output of an image program into its header (`head`) and the bytes of all tiles or frames (`body`). */
export function splitOutput<Head>(output: Buffer): { readonly head: Head; readonly body: Buffer } {
  const end = output.indexOf("\n");
  return { head: JSON.parse(output.toString("utf8", 0, end)) as Head, body: output.subarray(end + 1) };
}
