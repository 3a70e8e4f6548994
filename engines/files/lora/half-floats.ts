// Owns what the bits of the 16-bit floats stand for, and which of them are nearest to a number. For the files of adapters,
// which have millions: no object is made for one. Pure.

const scratch = new Float32Array(1);
const scratchBits = new Uint32Array(scratch.buffer);

/** The F16 bits of the nearest number, of the two nearest the even one. Beyond the largest, 65504, those of infinity. */
export function halfBits(value: number): number {
  scratch[0] = value;
  const bits = scratchBits[0] as number;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x47800000) return sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00);
  if (magnitude < 0x38800000) {
    // Below 2^-14 numbers are counted in steps of 2^-24, which is what the last bit of a float near 0.5 is worth.
    scratch[0] = Math.abs(value) + 0.5;
    return sign | ((scratchBits[0] as number) - 0x3f000000);
  }
  const isOdd = (magnitude >>> 13) & 1;
  return sign | ((magnitude - 0x38000000 + 0xfff + isOdd) >>> 13);
}

let halves: Float32Array | null = null;

/** The number that each F16 stands for. */
export function halfValues(): Float32Array {
  halves ??= Float32Array.from({ length: 0x10000 }, (_, bits) => {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >>> 10) & 31;
    const fraction = bits & 1023;
    if (exponent === 31) return fraction === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
    return sign * (exponent === 0 ? fraction * 2 ** -24 : (1024 + fraction) * 2 ** (exponent - 25));
  });
  return halves;
}
