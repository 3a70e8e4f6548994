// Thread of the benchmark of block encoders: encodes its rows with our codec and with llama.cpp's codec, while the other threads do
// the same.
import { performance } from "node:perf_hooks";
import { BlockCodec } from "../../engines/quantization/codec/block-codec.ts";
import type { PlaceContext } from "../../runtime/thread/entry.ts";
import { openNativeCodec } from "../../test/fixtures/quantization/native-codec.ts";
import { bytesOf, gaussianRows, randomImportance } from "../../test/fixtures/quantization/rows.ts";
import { meet } from "../kernels/place.ts";

export interface QuantizeBenchInit {
  readonly types: readonly number[];
  readonly rows: number;
  readonly columns: number;
  readonly hasImportance: boolean;
  readonly rounds: number;
  readonly millisecondsEach: number;
  readonly threads: number;
  /** Barrier of two 32-bit words, initially zero; see meet(). */
  readonly meeting: SharedArrayBuffer;
}

/** Encoding rates, in bytes of F32 input per second. */
export interface Rates {
  readonly ours: number;
  readonly theirs: number;
}

/** Rates of each round, for each type in the order of init.types. */
export type QuantizeBenchReady = readonly (readonly Rates[])[];

export const quantizeBenchModule = new URL(import.meta.url);

/** Number of rows encoded by one call. It is small, so that a measurement ends soon after its planned duration. */
const rowsPerCall = 16;

export async function start({ init }: PlaceContext<QuantizeBenchInit>): Promise<QuantizeBenchReady> {
  const { rows, columns } = init;
  const codec = BlockCodec.create();
  const native = await openNativeCodec();
  const { values } = gaussianRows(rows, columns);
  const importance = init.hasImportance ? randomImportance(columns) : null;
  return init.types.map((type) => {
    const out = new Uint8Array(bytesOf(type, rowsPerCall * columns));
    const rate = (encode: (part: Float32Array) => void): number => {
      let row = 0;
      return bytesPerSecond(init, rowsPerCall * columns * 4, () => {
        encode(values.subarray(row * columns, (row + rowsPerCall) * columns));
        row = (row + rowsPerCall) % (rows - (rows % rowsPerCall));
      });
    };
    const rounds = Array.from({ length: init.rounds + 1 }, () => ({
      ours: rate((part) => codec.encodeRows(type, part, columns, importance, out)),
      theirs: rate((part) => native.encode(type, part, columns, importance, out)),
    }));
    // The first round is dropped: the compiler still optimizes the code in it.
    return rounds.slice(1);
  });
}

/** Starts at the same time as all other threads, calls `call` for the planned duration, and returns the rate. */
function bytesPerSecond(init: QuantizeBenchInit, bytesPerCall: number, call: () => void): number {
  meet(new Int32Array(init.meeting), init.threads);
  const startMs = performance.now();
  let calls = 0;
  let spentMs = 0;
  while (spentMs < init.millisecondsEach) {
    call();
    calls++;
    spentMs = performance.now() - startMs;
  }
  return (calls * bytesPerCall * 1000) / spentMs;
}
