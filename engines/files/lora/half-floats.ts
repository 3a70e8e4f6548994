// 16-bit floats: conversion from and to F16 bits. Adapter files have millions of values, so nothing is allocated per
// value.

const scratch = new Float32Array(1);
const scratchBits = new Uint32Array(scratch.buffer);

/** Returns the F16 bits of the nearest number, ties to even. Numbers beyond the largest F16, 65504, become infinity. */
export function halfBits(value: number): number {
  scratch[0] = value;
  const bits = scratchBits[0] as number;
  const sign = (bits >>> 16) & 0x8000;
  const magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x47800000) return sign | (magnitude > 0x7f800000 ? 0x7e00 : 0x7c00);
  if (magnitude < 0x38800000) {
    // Below 2^-14, F16 values are multiples of 2^-24. Adding 0.5 rounds the value to such a multiple, because F32
    // numbers between 0.5 and 1 are 2^-24 apart.
    scratch[0] = Math.abs(value) + 0.5;
    return sign | ((scratchBits[0] as number) - 0x3f000000);
  }
  const isOdd = (magnitude >>> 13) & 1;
  return sign | ((magnitude - 0x38000000 + 0xfff + isOdd) >>> 13);
}

let halves: Float32Array | null = null;

/** Returns a table with the value of each of the 65,536 F16 bit patterns. */
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
